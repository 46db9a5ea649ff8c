package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"agentgw/directory"
	"agentgw/internal/control"
	"agentgw/internal/frame"
)

// corpusReport is what -corpus reports.
type corpusReport struct {
	Corpus     *corpusSize        `json:"corpus"`
	Queries    int                `json:"queries"`
	Unanswered int                `json:"unanswered"` // a gateway did not answer in time, or refused
	Cut        int                `json:"cut"`        // too long for a request, asked by their beginning
	Hit1       float64            `json:"hit1"`       // share of queries whose first capability is gold
	Hit5       float64            `json:"hit5"`       // share with any gold one among five
	Latency    map[string]latency `json:"latency"`    // by hops of the route
}

type corpusSize struct {
	Agents     int   `json:"agents"`
	Tools      int   `json:"tools"`
	RegisterMS int64 `json:"register_ms"`
}

type latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	N   int     `json:"n"`
}

// corpusLimits lets one machine register thousands of agents and ask without pause.
const corpusLimits = `limits: {handshake_rate: 5000, enrol_rate: 5000, agent_request_rate: 5000, peer_request_rate: 5000}   # of the demo: no pause for one machine
`

const tellEvery = 500 // queries

// showCorpus registers a corpus and asks its queries.
func (w *world) showCorpus(ctx context.Context, in *input, r *report) error {
	all, err := groups(in.corpus)
	if err != nil {
		return err
	}
	if err := w.startGateways(ctx, corpusLimits); err != nil {
		return err
	}
	w.out.say("the rates of enrolments, handshakes and requests are raised in the three gatewayd.yaml: one machine plays everyone")
	began := time.Now()
	toolOf, err := w.register(ctx, all)
	if err != nil {
		return err
	}
	if err := w.awaitDigests(ctx, nil); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	r.corpusReport = &corpusReport{
		Corpus:  &corpusSize{len(all), len(toolOf), time.Since(began).Milliseconds()},
		Latency: map[string]latency{},
	}
	r.Digests = &digestReport{Acked: true}
	w.out.say(fmt.Sprintf("%d agents with %d tools are registered, attached and advertised after %d ms",
		len(all), len(toolOf), r.Corpus.RegisterMS))
	return w.askAll(ctx, in.queries, toolOf, r.corpusReport)
}

// register enrols every agent and returns which tool a Capability Identifier stands for.
func (w *world) register(ctx context.Context, all []*group) (map[string]string, error) {
	w.out.headline(fmt.Sprintf("%d agents enrol, dealt over the three domains, %d at a time", len(all), atOnce))
	answers := make([]enrolled, len(all))
	agents, jobs := []agent{assistant}, []func() error{}
	for i, g := range all {
		agents = append(agents, g.agent)
		jobs = append(jobs, func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			answers[i], err = w.enrol(ctx, g.agent)
			return err
		})
	}
	jobs = append(jobs, func() error {
		_, err := w.enrol(ctx, assistant)
		return err
	})
	if err := inParallel(jobs); err != nil {
		return nil, err
	}
	toolOf := map[string]string{}
	for i, g := range all {
		if len(answers[i].Capabilities) != len(g.tools) {
			return nil, fmt.Errorf("agent %s (%s) offers %d skills, %d were granted",
				g.name, g.title, len(g.tools), len(answers[i].Capabilities))
		}
		for n, s := range g.skills {
			toolOf[directory.CapID(answers[i].AIC, s.ID)] = g.tools[n]
		}
	}
	return toolOf, w.runHosts(ctx, agents)
}

// found is an answer of agentd's control socket.
type found struct {
	Code    string `json:"code"`
	Status  string `json:"status"`
	Results []struct {
		Capability string `json:"capability"`
	} `json:"results"`
	Hops      int     `json:"hops"`
	ElapsedMS float64 `json:"elapsed_ms"`
}

// askAll asks one query after the other, so that each one's latency is its own.
func (w *world) askAll(ctx context.Context, queries []query, toolOf map[string]string, r *corpusReport) error {
	if len(queries) == 0 {
		return nil
	}
	w.out.headline(fmt.Sprintf("%d queries are asked from AG1: five results wanted, every gateway asked at once", len(queries)))
	c := control.NewClient(w.hosts[assistantHost].control)
	times := map[int][]float64{}
	hit1, hit5 := 0, 0
	for i, q := range queries {
		a, err := ask(ctx, c, q, r)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || a.Code != frame.OK.Hex() && a.Code != frame.NotFound.Hex() {
			r.Unanswered++
			w.out.say(fmt.Sprintf("query %s was not answered: %s %v", q.ID, a.Status, err))
			continue
		}
		r.Queries++
		times[a.Hops] = append(times[a.Hops], a.ElapsedMS)
		rank := rankOf(q, a, toolOf)
		hit1 += btoi(rank == 0)
		hit5 += btoi(rank >= 0 && rank < 5)
		if (i+1)%tellEvery == 0 {
			w.out.say(fmt.Sprintf("%d queries asked", i+1))
		}
	}
	r.Hit1, r.Hit5 = share(hit1, len(queries)), share(hit5, len(queries))
	for hops, list := range times {
		r.Latency[strconv.Itoa(hops)] = summary(list)
	}
	w.tellCorpus(r)
	return nil
}

func ask(ctx context.Context, c *control.Client, q query, r *corpusReport) (a found, err error) {
	text := clean(q.Text)
	if len(text) > maxQuery {
		text = clip(text, maxQuery)
		r.Cut++
	}
	err = c.Call(ctx, "/v1/resolve", map[string]any{
		"agent": assistant.name, "query": map[string]string{"text": text}, "want": 5, "breadth": 8, "parallel": true,
		"constraints": map[string]int{"min_score": 1},
	}, &a)
	return a, err
}

// rankOf is the place of the first gold result, from 0; -1 when there is none.
func rankOf(q query, a found, toolOf map[string]string) int {
	for i, res := range a.Results {
		if slices.Contains(q.Gold, toolOf[res.Capability]) {
			return i
		}
	}
	return -1
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func share(n, of int) float64 { return float64(int(1000*float64(n)/float64(of)+.5)) / 1000 }

func summary(list []float64) latency {
	slices.Sort(list)
	at := func(p float64) float64 { return list[min(int(p*float64(len(list))), len(list)-1)] }
	return latency{P50: at(.5), P99: at(.99), N: len(list)}
}

func (w *world) tellCorpus(r *corpusReport) {
	w.out.say(fmt.Sprintf("%d queries answered, %d not; a gold tool came first in %.1f %%, and was among the five in %.1f %%",
		r.Queries, r.Unanswered, 100*r.Hit1, 100*r.Hit5))
	if r.Cut > 0 {
		w.out.say(fmt.Sprintf("%d queries were longer than a request may be; their first %d bytes were asked", r.Cut, maxQuery))
	}
	for hops := range len(domains) {
		if l, ok := r.Latency[strconv.Itoa(hops)]; ok {
			w.out.say(fmt.Sprintf("answers over %s: %d, half of them within %.1f ms, 99 %% within %.1f ms",
				count(hops, "hop"), l.N, l.P50, l.P99))
		}
	}
}
