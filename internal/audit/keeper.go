package audit

import (
	"context"
	"log/slog"
)

// keeper hands checkpoints to Config.Keep on a goroutine of its own: Keep may write to a database whose writer records here. While Keep
// is busy only the newest waits, for that is all that it is about.
type keeper struct {
	newest chan []byte // one place
	ended  chan struct{}
}

func startKeeper(keep Keeper, log *slog.Logger) *keeper {
	k := &keeper{newest: make(chan []byte, 1), ended: make(chan struct{})}
	go func() {
		defer close(k.ended)
		for raw := range k.newest {
			if keep == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), keepLimit)
			if err := keep(ctx, raw); err != nil {
				log.Warn("a checkpoint of the audit log could not be kept; the one before it stays", "err", err)
			}
			cancel()
		}
	}()
	return k
}

// put is for the writer's goroutine alone.
func (k *keeper) put(raw []byte) {
	select {
	case <-k.newest: // older, and not kept yet
	default:
	}
	k.newest <- raw // there is a place: nobody else puts
}

// stop waits until the newest is kept.
func (k *keeper) stop() {
	close(k.newest)
	<-k.ended
}
