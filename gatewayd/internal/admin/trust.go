package admin

import (
	"context"
	"net/http"

	"agentgw/internal/control"
)

// Trust is what the socket does about trust between domains.
type Trust interface {
	ApprovePeer(ctx context.Context, r ApproveRequest) error
}

// ApproveRequest believes an introduced domain that waits.
type ApproveRequest struct {
	Domain      string `json:"domain"`
	Fingerprint string `json:"fingerprint"` // sha256:… of the key that signed its bundle
}

func handleTrust(mux *http.ServeMux, g Trust) {
	mux.HandleFunc("POST /v1/peers/approve", control.Handle(func(ctx context.Context, r ApproveRequest) (None, error) {
		return None{}, g.ApprovePeer(ctx, r)
	}))
}
