package registrar

import (
	"context"
	"time"

	"agentgw/internal/frame"
)

// Happening is what Config.Observe tells of an agent.
type Happening string

// The happenings.
const (
	Attached Happening = "attached" // the text is where from
	Detached Happening = "detached" // why
	Enrolled Happening = "enrolled" // where from
)

var errLame = frame.Errorf(frame.Shutdown, "this gateway is drained and takes no agents: use another one of the domain, or come again later")

const (
	lameRetry    = 30 * time.Second // after which an agent that may not enrol may try again
	releaseEvery = 50 * time.Millisecond
)

// SetLame says whether agents are refused (02): ATTACH, and ENROL of an agent. Gateways of the domain may join, and credentials are renewed.
func (r *Registrar) SetLame(lame bool) { r.lame.Store(lame) }

// Release closes the connections of all agents with 02, which sends them elsewhere: each as soon as none of its requests runs, and at the end of
// ctx whatever runs. It returns when none is attached; on cancel it leaves those that are.
func (r *Registrar) Release(ctx context.Context) {
	tick := time.NewTicker(releaseEvery)
	defer tick.Stop()
	for {
		due := ctx.Err() != nil
		if ctx.Err() == context.Canceled {
			return
		}
		all := r.everybody()
		for _, a := range all {
			if due || a.asking.Load() == 0 {
				a.conn.Close(frame.Shutdown, "this gateway is drained")
			}
		}
		if due || len(all) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
