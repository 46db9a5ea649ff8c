package registrar

// Kinds of audit records of the directory's entries. Data of all has the AIC as `aic`.
const (
	KindRegistered = "agent.registered"
	KindUpdated    = "agent.updated"   // another ACS
	KindAdopted    = "agent.adopted"   // it was at home at another gateway of the domain, and is here now
	KindWithdrawn  = "agent.withdrawn" // data: Withdrawn
)

// Withdrawn is the data of the record of an agent that was taken out of the directory for good.
type Withdrawn struct {
	AIC    string `json:"aic"`
	Reason string `json:"reason"`
}
