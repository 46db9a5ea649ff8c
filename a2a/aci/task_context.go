package aci

import (
	"slices"
	"time"
)

// TaskContext is the state of a whole task (seed 000, section 5.1). Its master keeps it; it never travels.
type TaskContext struct {
	TaskID          string       `json:"TaskID"`
	UserQuery       string       `json:"UserQuery"`
	TaskName        string       `json:"TaskName"`
	TaskDescription string       `json:"TaskDescription"`
	GoalStatus      []GoalStatus `json:"GoalStatus"`
	OverallStatus   GoalState    `json:"OverallStatus"`
	StartTime       string       `json:"StartTime" aci:"optional"` // RFC 3339
	EndTime         string       `json:"EndTime" aci:"optional"`   // RFC 3339
	Optional        []string     `json:"Optional" aci:"lenient"`
	Extra           Members      `json:"-"`
}

// GoalStatus is the progress of one goal.
type GoalStatus struct {
	Goal   string    `json:"Goal"`
	Status GoalState `json:"Status"`
	Extra  Members   `json:"-"`
}

var taskOptional = []string{"StartTime", "EndTime"}

// ParseTaskContext reads and validates a TaskContext.
func ParseTaskContext(b []byte) (*TaskContext, error) {
	c := &TaskContext{}
	if err := parse(b, c); err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// Validate holds the rules of the schema.
func (c *TaskContext) Validate() error {
	if c.TaskID == "" || len(c.TaskID) > MaxID {
		return malformed("TaskID of 1 to %d bytes is due", MaxID)
	}
	if c.OverallStatus == "" {
		return malformed("OverallStatus is empty")
	}
	if len(c.GoalStatus) > MaxEntries {
		return malformed("%d goals, at most %d are allowed", len(c.GoalStatus), MaxEntries)
	}
	for i, g := range c.GoalStatus {
		if g.Goal == "" || g.Status == "" {
			return malformed("GoalStatus[%d] has no Goal or no Status", i)
		}
	}
	for _, when := range []string{c.StartTime, c.EndTime} {
		if err := checkTime(when); err != nil {
			return err
		}
	}
	return checkOptional(c.Optional, taskOptional, []string{"TaskID", "UserQuery", "TaskName", "TaskDescription", "GoalStatus", "OverallStatus"})
}

// SetGoal changes the state of the goal called goal, and OverallStatus with it, which combines all goals.
func (c *TaskContext) SetGoal(goal string, s GoalState) {
	all := make([]GoalState, len(c.GoalStatus))
	for i := range c.GoalStatus {
		if c.GoalStatus[i].Goal == goal {
			c.GoalStatus[i].Status = s
		}
		all[i] = c.GoalStatus[i].Status
	}
	c.OverallStatus = Combine(all)
}

// Combine is the state of something whose parts have these states: pending while all are; in progress until each has ended;
// then failed if one failed, else cancelled if one was, else completed.
func Combine(parts []GoalState) GoalState {
	count := make(map[GoalState]int)
	for _, s := range parts {
		count[s.Known()]++
	}
	switch {
	case count[Pending] == len(parts):
		return Pending
	case count[Pending]+count[InProgress] > 0:
		return InProgress
	case count[Failed] > 0:
		return Failed
	case count[Cancelled] > 0:
		return Cancelled
	}
	return Completed
}

func checkTime(s string) error {
	if s == "" {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, s); err != nil {
		return malformed("time %q is not of RFC 3339", s)
	}
	return nil
}

// checkOptional refuses an Optional array that declares a required member optional. Names that nobody knows are kept.
func checkOptional(listed, optional, required []string) error {
	if len(listed) > MaxEntries {
		return malformed("Optional lists %d members", len(listed))
	}
	for _, name := range listed {
		if slices.Contains(required, name) {
			return malformed("Optional lists %s, which is required; %q may be", name, optional)
		}
	}
	return nil
}
