package agent

// Memory is the exported memory of an agent: its conversations with their messages, learned
// patterns, goals and peers. Times are seconds since 1970.
type Memory struct {
	Agent         string         `json:"agent"`
	Conversations []Conversation `json:"conversations"`
	Patterns      []Pattern      `json:"patterns"`
	Goals         []Goal         `json:"goals"`
	Peers         []Peer         `json:"peers"`
}

// A Conversation is a row of the table conversations, with its messages.
type Conversation struct {
	ID         string    `json:"id"`
	StartedAt  int64     `json:"started_at"`
	Summary    string    `json:"summary"`
	TokensUsed int64     `json:"tokens_used"`
	Messages   []Message `json:"messages"`
}

// A Message is a row of the table messages.
type Message struct {
	ID        string `json:"id"`
	Role      string `json:"role"`
	Content   string `json:"content"`
	CreatedAt int64  `json:"created_at"`
}

// A Pattern is a row of the table learned_patterns.
type Pattern struct {
	ID          string  `json:"id"`
	PatternType string  `json:"pattern_type"`
	Description string  `json:"description"`
	Confidence  float64 `json:"confidence"`
}

// A Goal is a row of the table goals.
type Goal struct {
	ID          string  `json:"id"`
	Description string  `json:"description"`
	Priority    int64   `json:"priority"`
	Status      string  `json:"status"`
	Progress    float64 `json:"progress"`
}

// A Peer is a row of the table agent_peers.
type Peer struct {
	NPub         string  `json:"npub"`
	Name         string  `json:"name"`
	Relationship string  `json:"relationship"`
	TrustScore   float64 `json:"trust_score"`
}
