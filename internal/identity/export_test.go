package identity

// Fill makes as many entries as may be kept count as kept.
func (s *Statuses) Fill() { s.entries = maxStatusesOfForeign }

// StatusShare is what one issuer may have in any case.
const StatusShare = statusShare
