package a2a

import (
	"sync"
	"time"

	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// sessionless is how long a peer may hold a connection that has no session.
const sessionless = 30 * time.Second

// usage counts the sessions of one connection that a peer opened, and closes it when it has had none for 30 s: with 08 before the
// first, with 09 after one. Whoever may finish a handshake could else hold connections for ever and ask for nothing.
type usage struct {
	conn *endpoint.Conn

	mu       sync.Mutex // guards what follows
	sessions int
	since    time.Time // since when there has been none
	code     frame.Code
	timer    *time.Timer
}

func watch(conn *endpoint.Conn) *usage {
	u := &usage{conn: conn, since: time.Now(), code: frame.HelloTimeout}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.timer = time.AfterFunc(sessionless, u.expire)
	return u
}

func (u *usage) expire() {
	u.mu.Lock()
	unused, code := u.sessions == 0 && time.Since(u.since) >= sessionless, u.code
	u.mu.Unlock()
	if unused {
		u.conn.Close(code, "no session")
	}
}

// enter counts a session that was accepted; leave its end.
func (u *usage) enter() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sessions++
	u.timer.Stop()
}

func (u *usage) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sessions--; u.sessions == 0 {
		u.since, u.code = time.Now(), frame.HoldExpired
		u.timer.Reset(sessionless)
	}
}

// stop ends the count, with the connection.
func (u *usage) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.timer.Stop()
}
