package app

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"agentgw/agentd/internal/attach"
	"agentgw/config"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// staging is the folder of an enrolment that has not ended yet, beside the one of the agent that the name may have already, which serves on
// and is moved aside when the new one is whole, and not before.
type staging struct {
	dir  string
	into string   // the agent's folder
	made []string // folders that were not there before, the outermost first
	key  crypto.Signer
}

// stagingEnding is no part of a valid name, so that no agent can be called so.
const stagingEnding = "~new"

// stage makes the folder with a key, or goes on with the one of an enrolment that was cut short, so that the same token can complete it.
func stage(cfg *config.Agent, o EnrolOptions) (*staging, error) {
	into := agentDir(cfg.StateDir, o.Name)
	s := &staging{dir: into + stagingEnding, into: into}
	err := s.makeDir(o.Dir, 0o755)
	if err == nil {
		err = s.makeDir(s.dir, 0o700)
	}
	if err == nil {
		s.key, err = loadOrMakeKey(s.dir)
	}
	if err != nil {
		return nil, errors.Join(err, s.clear())
	}
	return s, nil
}

// makeDir makes a folder with those above it, and remembers which were not there.
func (s *staging) makeDir(dir string, mode fs.FileMode) error {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, d)
	}
	slices.Reverse(missing)
	s.made = append(s.made, missing...)
	return os.MkdirAll(dir, mode)
}

// failed clears up after an enrolment that failed, and is why it did. The key stays where it may be needed to complete the registration:
// while the request waits, when the answer was lost, or when the gateway could not answer for now.
func (s *staging) failed(why error) error {
	var lost *attach.Lost
	var refused *attach.Refused
	switch {
	case errors.As(why, &lost), frame.CodeOf(why) == frame.Pending:
		return why
	case errors.As(why, &refused):
		if forNow(frame.CodeOf(why)) {
			return why
		}
	case !slices.Contains(s.made, s.dir): // nothing was presented now, but perhaps before
		return why
	}
	if err := s.clear(); err != nil {
		return errors.Join(why, fmt.Errorf("clear up: %w", err))
	}
	return why
}

// forNow says whether a refusal tells nothing about the request itself.
func forNow(c frame.Code) bool {
	return slices.Contains([]frame.Code{frame.Internal, frame.Shutdown, frame.RateLimited, frame.Overloaded, frame.UpstreamFailed, frame.Deadline, frame.Cancelled}, c)
}

// clear removes the folder, and of those that were made for it the empty ones.
func (s *staging) clear() error {
	err := os.RemoveAll(s.dir)
	for _, d := range slices.Backward(s.made) {
		os.Remove(d) // one that has something in it stays
	}
	return err
}

// install puts the enrolment in its place. The one that the name had before is kept beside it, and is back if that fails.
func (s *staging) install() error {
	before := fmt.Sprintf("%s.before-%d", s.into, time.Now().Unix())
	err := os.Rename(s.into, before)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	moved := err == nil
	if err = os.Rename(s.dir, s.into); err != nil && moved {
		return errors.Join(err, os.Rename(before, s.into))
	}
	return err
}

// finish puts an enrolment in its place that was cut short between the two steps of install, and says whether there was one. Before
// them the agent of the name is in its place and its enrolment can be repeated.
func finish(cfg *config.Agent, name string) (bool, error) {
	dir := agentDir(cfg.StateDir, name)
	if _, err := readEnrolment(dir); !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if _, err := readEnrolment(dir + stagingEnding); err != nil {
		return false, nil //nolint:nilerror // there is none that is whole
	}
	if _, err := os.Stat(agentFile(cfg, name)); err != nil {
		return false, nil //nolint:nilerror // it was cut short before
	}
	return true, os.Rename(dir+stagingEnding, dir)
}

// keepEnrolment writes what the gateway answered into the folder, the agent's file, and puts both to use, in this order: what is cut short
// is completed by the same command, or by the next start.
func (s *staging) keepEnrolment(cfg *config.Agent, file string, o EnrolOptions, done *arp.Enrolled, e enrolment) error {
	if err := save(s.dir, done, e); err != nil {
		return fmt.Errorf("keep the credential: %w", err)
	}
	if err := ensureConfig(file, o); err != nil {
		return err
	}
	if err := writeAgent(cfg, o, e.Gateway); err != nil {
		return err
	}
	return s.install()
}
