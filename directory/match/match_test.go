package match

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentgw/directory"
	"agentgw/directory/match/table"

	"github.com/google/go-cmp/cmp"
)

func capability(agent int, skill, name, description string, tags ...string) directory.Capability {
	aic := fmt.Sprintf("2.999.1.1.1.A.1.1.%d.0000", agent)
	return directory.Capability{
		AIC: aic, CapID: directory.CapID(aic, skill), SkillID: skill, Name: name, Description: description, Tags: tags,
		In: []string{"text/plain"}, Out: []string{"application/json"}, Provider: fmt.Sprint("provider ", agent),
	}
}

// town is a small directory of our own making.
func town() []directory.Capability {
	return []directory.Capability{
		capability(1, "pharmacy.sell", "Sell over-the-counter medicine", "Throat lozenges, sore throat remedies, pain relief. Delivers within the hour.", "health", "pharmacy"),
		capability(2, "clinic.diagnose", "Disease diagnosis", "Names the likely disease for symptoms that a patient describes.", "health"),
		capability(3, "travel.hotel.book", "Hotel booking", "Finds and books a hotel room in a city for some nights.", "travel"),
		capability(3, "travel.flight.book", "Flight booking", "Finds and books flights between two airports.", "travel"),
		capability(4, "weather.forecast", "Weather forecast", "Tomorrow's weather for a city: rain, wind, temperature.", "weather"),
		capability(5, "finance.invoice.extract", "Extract invoice", "Reads totals, tax and dates from an invoice in PDF.", "finance"),
		capability(6, "garden.advice", "Garden advice", "Says when to sow, water and cut the plants of a garden.", "garden"),
	}
}

func index(caps []directory.Capability) *Index {
	x := new(Index)
	x.Load(caps)
	return x
}

func skills(list []directory.Candidate) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.SkillID)
	}
	return out
}

func TestResolveFindsTheRightOne(t *testing.T) {
	x := index(town())
	for query, want := range map[string]string{
		"medicine for a sore throat":                    "pharmacy.sell",
		"book a hotel room for two nights":              "travel.hotel.book",
		"which disease do my symptoms point to":         "clinic.diagnose",
		"will it rain tomorrow":                         "weather.forecast",
		"read the totals of this PDF invoice":           "finance.invoice.extract",
		"please call finance.invoice.extract for me":    "finance.invoice.extract",
		"When should I water the plants in my garden? ": "garden.advice",
	} {
		got := x.Resolve(Query{Text: query})
		if len(got) == 0 || got[0].SkillID != want {
			t.Errorf("%q: got %v, want %s first", query, skills(got), want)
		}
	}
}

// TestConfidenceAndTheBar holds what the bar is for: a fitting capability is clearly above it, all others clearly below.
func TestConfidenceAndTheBar(t *testing.T) {
	x := index(town())
	for query, fits := range map[string]string{
		"medicine for a sore throat":       "pharmacy.sell",
		"disease diagnosis":                "clinic.diagnose",
		"book a hotel room for two nights": "travel.hotel.book",
		"weather forecast for tomorrow":    "weather.forecast",
		"extract the totals of an invoice": "finance.invoice.extract",
	} {
		const margin = 500
		for _, c := range x.Resolve(Query{Text: query}) {
			if c.SkillID == fits && c.Confidence < AnswerBar+margin {
				t.Errorf("%q: %s has %d, the bar is %d", query, c.SkillID, c.Confidence, AnswerBar)
			}
			if c.SkillID != fits && c.Confidence > AnswerBar-margin {
				t.Errorf("%q: %s has %d, the bar is %d", query, c.SkillID, c.Confidence, AnswerBar)
			}
		}
	}
	for _, query := range []string{"repair a bicycle", "translate a letter into Finnish", "the and of", "", "???"} {
		for _, c := range x.Resolve(Query{Text: query}) {
			if c.Confidence > AnswerBar/2 {
				t.Errorf("%q: %s has %d", query, c.SkillID, c.Confidence)
			}
		}
	}
}

func TestConfidenceDoesNotDependOnTheDirectory(t *testing.T) {
	alone := index(town()[:1]).Resolve(Query{Text: "medicine for a sore throat"})
	among := index(town()).Resolve(Query{Text: "medicine for a sore throat"})
	if alone[0].Confidence != among[0].Confidence || alone[0].Score == among[0].Score {
		t.Errorf("confidence %d and %d, score %f and %f", alone[0].Confidence, among[0].Confidence, alone[0].Score, among[0].Score)
	}
	c := town()[0]
	foreign := SkillText{Name: c.Name, Description: c.Description, Tags: c.Tags, In: c.In, Out: c.Out}
	if got := ScoreText(Query{Text: "medicine for a sore throat"}, foreign); got != alone[0].Confidence {
		t.Errorf("ScoreText = %d, at home %d", got, alone[0].Confidence)
	}
}

// TestConfidenceFormula is the documented formula by hand: two terms, one found once in the description.
func TestConfidenceFormula(t *testing.T) {
	bgRain, bgFire := Background("rain"), Background("fire")
	length := 3*10 + 1*10. // name of one word, description of one word
	sat := 10 / (10 + 10*(.5+.5*length/250))
	words := bgRain * sat / (bgRain + bgFire)
	v, scale := quantise(nil, table.Builtin.Embed(Bag(&directory.Capability{Name: "Clouds", Description: "rain"})))
	q := embedQuery(table.Builtin, []string{"rain", "fire"})
	cosine := float64(float32(dot(v, q.v)) * scale * q.scale)
	want := uint16(math.Round(10_000 / (1 + math.Exp(7.5-8*(words+cosine)))))
	if got := ScoreText(Query{Text: "rain fire"}, SkillText{Name: "Clouds", Description: "rain"}); got != want {
		t.Errorf("confidence %d, by hand %d", got, want)
	}
}

func TestScoreTextFilters(t *testing.T) {
	s := SkillText{CapID: "acps://x/y", Name: "Rain", Tags: []string{"Weather"}, In: []string{"text/plain"}, Out: []string{"image/png"}}
	for name, c := range map[string]struct {
		q    Query
		zero bool
		full bool
	}{
		"text":                   {q: Query{Text: "rain"}},
		"tag without text":       {q: Query{Tags: []string{" weather"}}, full: true},
		"its capability":         {q: Query{Text: "anything", Caps: []string{"acps://x/y"}}, full: true},
		"another capability":     {q: Query{Text: "rain", Caps: []string{"acps://x/z"}}, zero: true},
		"another tag":            {q: Query{Text: "rain", Tags: []string{"snow"}}, zero: true},
		"modes fit":              {q: Query{Text: "rain", In: []string{"text/*"}, Out: []string{"IMAGE/PNG; q=1"}}},
		"cannot take":            {q: Query{Text: "rain", In: []string{"audio/wav"}}, zero: true},
		"cannot give":            {q: Query{Text: "rain", Out: []string{"text/plain"}}, zero: true},
		"nothing in common":      {q: Query{Text: "fire"}, zero: true},
		"a text without a term":  {q: Query{Text: "the of"}, zero: true},
		"white space is no text": {q: Query{Text: "  ", Tags: []string{"weather"}}, full: true},
	} {
		got := ScoreText(c.q, s)
		if (got == 0) != c.zero || (got == 10_000) != c.full {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestFilters(t *testing.T) {
	x := index(town())
	travel := []string{"travel.flight.book", "travel.hotel.book"}
	hotel := town()[2]
	for name, c := range map[string]struct {
		q    Query
		want []string
	}{
		"tag alone":                          {Query{Tags: []string{"TRAVEL"}}, travel},
		"two tags":                           {Query{Tags: []string{"health", "pharmacy"}}, []string{"pharmacy.sell"}},
		"capability alone":                   {Query{Caps: []string{hotel.CapID}}, []string{"travel.hotel.book"}},
		"capability, text that does not fit": {Query{Text: "rain", Caps: []string{hotel.CapID}}, []string{"travel.hotel.book"}},
		"excluded":                           {Query{Text: "book", Exclude: []string{hotel.AIC}, MinScore: 200}, nil},
		"accept": {Query{Text: "book", Refuse: func(c *directory.Capability) string {
			if strings.Contains(c.SkillID, "hotel") {
				return ""
			}
			return "no hotel"
		}}, []string{"travel.hotel.book"}},
		"media type not taken":  {Query{Text: "book", In: []string{"image/png"}}, nil},
		"media type not given":  {Query{Text: "book", Out: []string{"image/png"}}, nil},
		"least confidence":      {Query{Text: "book", MinScore: 9999}, nil},
		"limit":                 {Query{Tags: []string{"travel"}, Limit: 1}, travel[:1]},
		"nothing asked":         {Query{}, nil},
		"text of no known term": {Query{Text: "quux"}, nil},
	} {
		if got := skills(x.Resolve(c.q)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestNoLimitBeforeRankingAndPlacesAreBounded(t *testing.T) {
	var caps []directory.Capability
	for i := range 8 {
		caps = append(caps, capability(1, fmt.Sprint("s", i), "Tide table", "tides of harbour"))
	}
	for i := range 20 {
		c := capability(10+i, "t", "Tide table", "tides of the harbour and more words that make it longer")
		c.Provider = "one"
		caps = append(caps, c)
	}
	x := index(caps)
	count := func(q Query) (agent, provider, all int) {
		list := x.Resolve(q)
		for _, c := range list {
			if c.AIC == caps[0].AIC {
				agent++
			}
			if c.Provider == "one" {
				provider++
			}
		}
		return agent, provider, len(list)
	}
	if a, p, n := count(Query{Text: "tide table"}); a != PerAIC || p != PerProvider || n != PerAIC+PerProvider {
		t.Errorf("%d of one agent, %d of one provider, %d", a, p, n)
	}
	if a, _, _ := count(Query{Text: "tide table", PerAIC: 6}); a != 6 {
		t.Errorf("raised limit gives %d of one agent", a)
	}
	list := x.Resolve(Query{Text: "tide table", Limit: 4})
	if !slices.Equal(skills(list), []string{"s0", "s1", "s2", "t"}) {
		t.Errorf("equal scores are not in the order of capability ids: %v", skills(list))
	}
}

func TestEvidence(t *testing.T) {
	got := index(town()).Resolve(Query{Text: "medicine for a sore throat", Tags: []string{"health"}})
	want := []directory.FieldMatch{{Field: "name", Terms: []string{"medicin"}}, {Field: "description", Terms: []string{"sore", "throat"}}}
	e := got[0].Evidence
	if diff := cmp.Diff(want, e.Matched); diff != "" {
		t.Errorf("matched (-want +got):\n%s", diff)
	}
	if e.Text <= 0 || e.Bigram <= 0 || e.Coverage != 10_000 || !slices.Equal(e.Structured, []string{"tag health"}) {
		t.Errorf("evidence %+v", e)
	}
	if e.Cosine < .5 || e.Cosine > 1 || got[0].Score < 1 {
		t.Errorf("cosine %f, %f deviations above the mean", e.Cosine, got[0].Score)
	}
}

func TestRepeatingANameGainsNothing(t *testing.T) {
	plain, stuffed := capability(1, "a", "Umbrella", "rents"), capability(2, "b", "Umbrella umbrella umbrella", "rents")
	got := index([]directory.Capability{plain, stuffed}).Resolve(Query{Text: "umbrella"})
	if len(got) != 2 || got[0].Score != got[1].Score {
		t.Errorf("scores %v", got)
	}
}

// TestHistoryDoesNotMatter changes an index at random and compares it with one that is built at once.
func TestHistoryDoesNotMatter(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	vocabulary := strings.Fields("river bridge tower market station garden museum ferry tram library harbour school bakery cinema")
	phrase := func(n int) string {
		var out []string
		for range n {
			out = append(out, vocabulary[rng.IntN(len(vocabulary))])
		}
		return strings.Join(out, " ")
	}
	var x Index
	now := map[int][]directory.Capability{}
	for step := range 400 {
		var changes []Change
		for _, agent := range rng.Perm(60)[:1+rng.IntN(4)] {
			c := Change{AIC: capability(agent, "s", "", "").AIC}
			delete(now, agent)
			if rng.IntN(4) > 0 {
				for s := range 1 + rng.IntN(3) {
					c.Caps = append(c.Caps, capability(agent, fmt.Sprint("s", s), phrase(2), phrase(8)))
				}
				now[agent] = c.Caps
			}
			changes = append(changes, c)
		}
		x.Apply(changes...)
		if step%40 != 39 {
			continue
		}
		var all []directory.Capability
		for _, caps := range now {
			all = append(all, caps...)
		}
		fresh := index(all)
		if x.Len() != fresh.Len() || x.Agents() != len(now) {
			t.Fatalf("seed %d, step %d: %d capabilities of %d agents, want %d of %d", seed, step, x.Len(), x.Agents(), fresh.Len(), len(now))
		}
		q := Query{Text: phrase(3), Limit: 200, PerAIC: 9}
		if diff := cmp.Diff(fresh.Resolve(q), x.Resolve(q)); diff != "" {
			t.Fatalf("seed %d, step %d (-fresh +changed):\n%s", seed, step, diff)
		}
	}
}

func TestReadersSeeWholeChanges(t *testing.T) {
	var x Index
	three := []directory.Capability{capability(1, "a", "Kite", ""), capability(1, "b", "Kite", ""), capability(1, "c", "Kite", "")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 {
			x.Apply(Change{AIC: three[0].AIC, Caps: three})
			x.Apply(Change{AIC: three[0].AIC})
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if n := len(x.Resolve(Query{Text: "kite"})); n != 0 && n != 3 {
			t.Errorf("a reader saw %d of 3 capabilities", n)
		}
	}
}

// thousands is a directory of n synthetic capabilities, one an agent, with a skewed vocabulary.
func thousands(n int) []directory.Capability {
	rng := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		r := rng.Float64()
		return fmt.Sprintf("w%c%c%d", 'a'+rng.IntN(26), 'a'+rng.IntN(26), int(20*r*r*r))
	}
	text := func(n int) string {
		var out []string
		for range n {
			out = append(out, word())
		}
		return strings.Join(out, " ")
	}
	var caps []directory.Capability
	for i := range n {
		caps = append(caps, capability(i+1, "s", text(3), text(25), word(), word()))
	}
	return caps
}

func BenchmarkResolve4k(b *testing.B) {
	caps := thousands(4096)
	x := index(caps)
	texts := make([]string, 64)
	for i := range texts {
		texts[i] = strings.Join(strings.Fields(caps[i*61].Description)[:8], " ")
	}
	b.Run("text", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			x.Resolve(Query{Text: texts[i%len(texts)], Limit: 5})
		}
	})
	b.Run("capability", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			x.Resolve(Query{Caps: []string{caps[i%len(caps)].CapID}})
		}
	})
}

func BenchmarkScoreText(b *testing.B) {
	c := town()[0]
	s := SkillText{Name: c.Name, Description: c.Description, Tags: c.Tags, In: c.In, Out: c.Out}
	q := Query{Text: "medicine for a sore throat, delivered today"}
	b.Run("query", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ScoreText(q, s)
		}
	})
	b.Run("prepared", func(b *testing.B) {
		p := Prepare(q)
		b.ReportAllocs()
		for b.Loop() {
			p.ScoreText(s)
		}
	})
}

// BenchmarkPut4k registers 4,000 agents one by one; the time is of all of them.
func BenchmarkPut4k(b *testing.B) {
	caps := thousands(4000)
	for b.Loop() {
		var x Index
		for i := range caps {
			x.Apply(Change{AIC: caps[i].AIC, Caps: caps[i : i+1]})
		}
	}
}

func TestAnIndexMayHaveAnotherTable(t *testing.T) {
	file := table.Append(nil, []string{"hotel", "rain"}, []float32{1, 1}, []int8{1, 0, 0, 1}, 2) // knows two things, and that they are not alike
	tokens, err := table.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	x := &Index{Table: tokens}
	x.Load(town())
	x.Apply(Change{AIC: town()[2].AIC, Caps: town()[2:3]})
	for query, want := range map[string]float64{"hotel forecast": 1, "book flights": 0} {
		got := x.Resolve(Query{Text: query})
		if len(got) == 0 || math.Abs(got[0].Evidence.Cosine-want) > 1e-6 {
			t.Errorf("%q: %s, cosine %f, want %f", query, skills(got), got[0].Evidence.Cosine, want)
		}
	}
	if own := index(town()).Resolve(Query{Text: "book flights"}); own[0].Evidence.Cosine < .3 {
		t.Errorf("with the built-in table the cosine is %f", own[0].Evidence.Cosine)
	}
}

func TestTypingErrorsAreForgiven(t *testing.T) {
	x := index(town())
	for query, want := range map[string]string{
		"wether forcast":           "weather.forecast",
		"hottel bookking":          "travel.hotel.book",
		"extract invoise totalls":  "finance.invoice.extract",
		"diagnossis of a diseasee": "clinic.diagnose",
	} {
		got := x.Resolve(Query{Text: query})
		if len(got) == 0 || got[0].SkillID != want {
			t.Errorf("%q: %v, want %s first", query, skills(got), want)
			continue
		}
		c := got[0].Capability
		if s := ScoreText(Query{Text: query}, SkillText{Name: c.Name, Description: c.Description, Tags: c.Tags}); s != got[0].Confidence || s == 0 {
			t.Errorf("%q: confidence %d at home, %d abroad", query, got[0].Confidence, s)
		}
	}
	if got := x.Resolve(Query{Text: "xqzzkw"}); len(got) != 0 {
		t.Errorf("nonsense finds %v", skills(got))
	}
}

func TestClasses(t *testing.T) {
	caps := town()
	caps[0].Classes = []string{"health/pharmacy/sale"}
	caps[1].Classes = []string{"health/pharmacy"}
	caps[4].Classes = []string{"geo/weather"}
	x := index(caps)
	for name, c := range map[string]struct {
		q     Query
		want  []string
		score []uint16
	}{
		"the class and what is below it": {Query{Classes: []string{"health/pharmacy"}}, []string{"pharmacy.sell", "clinic.diagnose"}, []uint16{10_000, 10_000}},
		"the class, then the one above":  {Query{Classes: []string{"Health/Pharmacy/Sale"}}, []string{"pharmacy.sell", "clinic.diagnose"}, []uint16{10_000, 5000}},
		"two classes":                    {Query{Classes: []string{"geo/weather", "health"}}, []string{"pharmacy.sell", "clinic.diagnose", "weather.forecast"}, []uint16{5000, 5000, 5000}},
		"one beside":                     {Query{Classes: []string{"health/clinic"}}, nil, nil},
		"with a tag":                     {Query{Classes: []string{"health"}, Tags: []string{"pharmacy"}}, []string{"pharmacy.sell"}, []uint16{10_000}},
	} {
		got := x.Resolve(c.q)
		if !slices.Equal(skills(got), c.want) {
			t.Errorf("%s: %v, want %v", name, skills(got), c.want)
			continue
		}
		for i := range got {
			if got[i].Confidence != c.score[i] {
				t.Errorf("%s: %s has %d, want %d", name, got[i].SkillID, got[i].Confidence, c.score[i])
			}
		}
	}
	got := x.Resolve(Query{Text: "sells medicine for a disease", Classes: []string{"geo/weather"}})
	if len(got) < 2 || got[0].SkillID != "weather.forecast" || !slices.Contains(got[0].Evidence.Structured, "class geo/weather (1)") {
		t.Errorf("text and class: %v, %v", skills(got), got[0].Evidence)
	}
}

// What people and attackers write: nothing costs more than its length, and nothing breaks.
func TestTextsOfAllKinds(t *testing.T) {
	caps := append(town(), capability(20, "zh.search", "必应搜索", "使用必应搜索指定的关键词，并返回搜索结果列表"),
		capability(21, "ja.weather", "天気予報", "明日の天気を教えます"), capability(22, "ko.book", "호텔 예약", "도시의 호텔 객실을 예약합니다"),
		capability(23, "ar.doctor", "طبيب", "يشخص الأمراض من الأعراض"))
	x := index(caps)
	for query, want := range map[string]string{
		"搜索结果":                                        "zh.search",
		"明日の天気":                                       "ja.weather",
		"호텔 객실":                                       "ko.book",
		"الأعراض":                                     "ar.doctor",
		"w\u200beath\u00ader forecast":                "weather.forecast",
		"\u202ehotel\u202c booking \U0001F3E8":        "travel.hotel.book",
		strings.Repeat("sore ", 200_000) + "medicine": "pharmacy.sell",
	} {
		got := x.Resolve(Query{Text: query})
		if len(got) == 0 || got[0].SkillID != want {
			t.Errorf("%.40q: %v, want %s first", query, skills(got), want)
		}
	}
	for _, query := range []string{"\U0001F600\U0001F600", "the of and", "\xff\xfe", strings.Repeat("\u0301", 1000), "'; drop table", strings.Repeat("((((", 1000)} {
		for _, c := range x.Resolve(Query{Text: query}) {
			if c.Confidence > AnswerBar {
				t.Errorf("%.20q: %s has %d", query, c.SkillID, c.Confidence)
			}
		}
	}
}

func FuzzResolve(f *testing.F) {
	x := index(town())
	for _, s := range []string{"book a hotel, then a flight. 3) pay", "wether forcast", "天気予報", "a\x00b\u202e", "finance.invoice.extract"} {
		f.Add(s, "travel")
	}
	f.Fuzz(func(t *testing.T, text, tag string) {
		for _, q := range []Query{{Text: text}, {Text: text, Tags: []string{tag}, Classes: []string{tag}}} {
			p := Prepare(q)
			list := x.ResolvePrepared(p)
			for i, c := range list {
				if i > 0 && c.Score > list[i-1].Score || c.Confidence > 10_000 {
					t.Errorf("%q: %+v", text, list)
				}
				p.ScoreText(SkillText{Name: c.Name, Description: c.Description, Tags: c.Tags})
			}
		}
	})
}

// A word that nobody knows is looked for in a capability's own text, and every capability that is passed by is judged: reading each text
// anew took ten times the rest of a request.
func TestTypingErrorsAreFoundInTheIndex(t *testing.T) {
	caps := thousands(2000)
	for i, word := range []string{"zorbfluxan", "qwintarbel", "xandrivok", "klimborun"} {
		for at := i; at < len(caps); at += 4 {
			caps[at].Description += strings.Repeat(" "+word, 1+at%3)
		}
	}
	x := index(caps)
	text := caps[0].Description + " zorbfluxen qwintarbol xandrivek klimborxun"
	q := Prepare(Query{Text: text, Limit: len(caps), PerAIC: 1})
	if len(q.unknown) != maxTypos {
		t.Fatalf("%d unknown words, not %d: the test needs others", len(q.unknown), maxTypos)
	}
	for _, c := range x.ResolvePrepared(q) {
		s := SkillText{Name: c.Name, Description: c.Description, Tags: c.Tags, In: c.In, Out: c.Out}
		if want := q.ScoreText(s); c.Confidence != want {
			t.Fatalf("%s: %d in the index, %d by its text alone", c.CapID, c.Confidence, want)
		}
	}
	far := Prepare(Query{Text: text, MinScore: fullMyriad})
	if n := testing.AllocsPerRun(5, func() { x.ResolvePrepared(far) }); n > 5000 {
		t.Errorf("%v allocations to judge what is not near enough", n)
	}
}

// A request may ask for many classes, of paths as deep as it likes: what a capability is worth for them is told without making each path anew.
func TestManyDeepClassesAreCheap(t *testing.T) {
	caps := thousands(1000)
	for i := range caps {
		caps[i].Classes = []string{"health/pharmacy"}
	}
	x := index(caps)
	q := Query{Classes: []string{"health"}, Limit: 5}
	for i := range 63 {
		q.Classes = append(q.Classes, fmt.Sprint(i, strings.Repeat("/a", 250)))
	}
	if n := testing.AllocsPerRun(3, func() { x.Resolve(q) }); n > 5000 {
		t.Errorf("%v allocations for %d classes and %d capabilities", n, len(q.Classes), len(caps))
	}
}

// A request may name many media types; they are read once, not for each capability.
func TestManyMediaTypesAreCheap(t *testing.T) {
	caps := thousands(1000)
	for i := range caps {
		caps[i].In = []string{"Text/Plain;charset=utf-8", "image/png"}
	}
	x := index(caps)
	q := Query{Text: caps[0].Description, Limit: 5}
	for i := range 64 {
		q.In = append(q.In, fmt.Sprint("Application/X-", i, ";q=1"))
	}
	if n := testing.AllocsPerRun(3, func() { x.Resolve(q) }); n > 20_000 {
		t.Errorf("%v allocations for %d media types and %d capabilities", n, len(q.In), len(caps))
	}
}

// The first typing errors after a large change come at once: one of them makes the table of trigrams, the others wait for it.
func TestTheTableOfTrigramsIsMadeOnce(t *testing.T) {
	s := newSegment()
	s.terms = map[string][]posting{}
	for i := range 20_000 {
		s.terms[fmt.Sprint("term", i)] = nil
	}
	var made [8]*grams
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range made {
		all.Go(func() {
			<-start
			made[i] = s.gramsOf()
		})
	}
	close(start)
	all.Wait()
	for _, g := range made {
		if g != made[0] {
			t.Fatal("it was made more than once")
		}
	}
}
