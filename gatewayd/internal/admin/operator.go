package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"agentgw/gatewayd/internal/monitor"
	"agentgw/internal/control"
	"agentgw/internal/frame"
)

// Operator is what the socket shows and does of the federation while it runs.
type Operator interface {
	Routes(ctx context.Context, r RoutesRequest) (*RoutesPage, error)
	Peer(r PeerRequest) ([]PeerRow, error)
	ResetPeer(ctx context.Context, r PeerRequest) (PeerReset, error)
	RefreshPeer(ctx context.Context, r PeerRequest) (PeerRefresh, error)
	DrainPeer(ctx context.Context, r PeerRequest) error
	// Drain makes the whole gateway a lame duck, or undoes it.
	Drain(ctx context.Context, r DrainRequest) error
	// Monitor calls each for every event until ctx ends or the gateway stops: began before the first, and stopping when the stop begins, beside each.
	Monitor(ctx context.Context, r MonitorRequest, began, stopping func(), each func(monitor.Event) error) error
}

// RoutesRequest asks for a page of the digest table.
type RoutesRequest struct {
	Name  string `json:"name,omitempty"`  // a label, a domain or the AIC of an origin; default: all
	After string `json:"after,omitempty"` // next of the page before
	Limit int    `json:"limit,omitempty"` // default and at most [MaxPage]
}

// RoutesPage is one page, by origin and key.
type RoutesPage struct {
	Routes []KnownRow `json:"routes"`
	Next   string     `json:"next,omitempty"` // where the next page begins; absent at the end
}

// KnownRow is one digest with every route to it.
type KnownRow struct {
	Origin      string     `json:"origin"` // AIC of the gateway
	Domain      string     `json:"domain"`
	NS          string     `json:"ns"`
	Label       string     `json:"label"`
	Key         string     `json:"key"` // hexadecimal
	Level       string     `json:"level"`
	Own         bool       `json:"own,omitempty"`
	Version     string     `json:"version"` // epoch.sequence of the origin
	LeftS       int64      `json:"left_s"`  // until it expires, unless its origin signs it anew
	Quarantined bool       `json:"quarantined,omitempty"`
	Routes      []RouteRow `json:"routes"`            // the best first
	ToldTo      []string   `json:"told_to,omitempty"` // AICs of the neighbours that hold it from this gateway
}

// RouteRow is what one neighbour announces.
type RouteRow struct {
	Gateway  string   `json:"gateway"`
	Domain   string   `json:"domain"` // of the neighbour
	Role     string   `json:"role"`
	Path     []string `json:"path"`
	MetricMS uint32   `json:"metric_ms"`
	Hops     uint8    `json:"hops_left"`
	AgeS     int64    `json:"age_s"` // that it is announced over this path
	Stale    bool     `json:"stale,omitempty"`
	Lame     bool     `json:"lame,omitempty"` // the neighbour takes nothing new, or is drained here
	Best     bool     `json:"best,omitempty"`
	// By is the first criterion that decided between it and the best, of the best between it and the next: lame, stale, role, path, metric, gateway
	By string `json:"by,omitempty"`
}

// PeerRequest names a neighbour: a domain, which is all its gateways, or a gateway by its AIC.
type PeerRequest struct {
	Peer string `json:"peer"`
	Undo bool   `json:"undo,omitempty"` // of drain
}

// PeerReset is what a reset did.
type PeerReset struct {
	Peer  string `json:"peer"`
	Ended int    `json:"ended"` // sessions
	Dials bool   `json:"dials"` // this gateway dials again; else the neighbour has to
}

// PeerRefresh is what a refresh did.
type PeerRefresh struct {
	Peer  string `json:"peer"`
	Asked int    `json:"asked"` // gateways, for their whole tables
}

// DrainRequest makes the gateway a lame duck.
type DrainRequest struct {
	Undo bool `json:"undo,omitempty"`
}

// MonitorRequest asks for events.
type MonitorRequest struct {
	Kinds []string `json:"kinds,omitempty"` // default: all
}

func handleOperator(mux *http.ServeMux, g Operator) {
	mux.HandleFunc("POST /v1/routes", control.Handle(g.Routes))
	mux.HandleFunc("POST /v1/peers/show", control.Handle(func(_ context.Context, r PeerRequest) ([]PeerRow, error) { return g.Peer(r) }))
	mux.HandleFunc("POST /v1/peers/reset", control.Handle(g.ResetPeer))
	mux.HandleFunc("POST /v1/peers/refresh", control.Handle(g.RefreshPeer))
	mux.HandleFunc("POST /v1/peers/drain", control.Handle(func(ctx context.Context, r PeerRequest) (None, error) {
		return None{}, g.DrainPeer(ctx, r)
	}))
	mux.HandleFunc("POST /v1/drain", control.Handle(func(ctx context.Context, r DrainRequest) (None, error) { return None{}, g.Drain(ctx, r) }))
	mux.HandleFunc("POST /v1/monitor", streamEvents(g))
}

// streamEvents writes one JSON object a line until the caller goes or the gateway stops. A caller that does not read holds up nobody else.
func streamEvents(g Operator) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in MonitorRequest
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil && !errors.Is(err, io.EOF) {
			control.WriteError(w, frame.Errorf(frame.ReqInvalid, "request body: %w", err))
			return
		}
		began, enc, rc := false, json.NewEncoder(w), http.NewResponseController(w)
		begin := func() {
			began = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			rc.Flush()
		}
		stopping := func() { rc.SetWriteDeadline(time.Now().Add(lastWords)) }
		err := g.Monitor(r.Context(), in, begin, stopping, func(e monitor.Event) error {
			if err := enc.Encode(e); err != nil {
				return err
			}
			return rc.Flush()
		})
		if err != nil && !began {
			control.WriteError(w, err)
		}
	}
}

// lastWords is how long a reader whose socket is full holds up the stop of the gateway.
const lastWords = time.Second
