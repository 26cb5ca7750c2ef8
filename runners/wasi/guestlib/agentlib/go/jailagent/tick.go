//go:build wasip1

package jailagent

import (
	"encoding/json"
	"strings"
)

// tickSystem is the system prompt of a tick. All languages' libraries have the same text and SQL.
const tickSystem = `You work towards your goals by yourself, one step at a time. You are told your open goals, what you did lately, and what you have learned. Do the next step,
and answer with one JSON object:
{"summary": "what you did, in a sentence", "goals": [{"id": "g1", "progress": 0.5, "status": "open"}],
 "patterns": [{"id": "p1", "pattern_type": "habit", "description": "what you have learned", "confidence": 0.8}]}
The status of a goal that you have reached is "done". Leave out goals and patterns that do not change.`

// tickContext selects the prompt for the model. It has no row if no goal is open.
const tickContext = `SELECT json_object(
'goals', (SELECT json_group_array(json_object('id', id, 'description', description,
'priority', priority, 'status', status, 'progress', progress)) FROM (SELECT * FROM goals
WHERE coalesce(status, '') NOT IN ('done', 'dropped') ORDER BY priority DESC, id)),
'memories', (SELECT json_group_array(json_object('started_at', started_at, 'summary', summary))
FROM (SELECT * FROM conversations WHERE summary <> '' ORDER BY started_at DESC, id DESC LIMIT 10)),
'patterns', (SELECT json_group_array(json_object('id', id, 'pattern_type', pattern_type,
'description', description, 'confidence', confidence)) FROM (SELECT * FROM learned_patterns
ORDER BY confidence DESC, id LIMIT 20))) AS context
WHERE EXISTS (SELECT 1 FROM goals WHERE coalesce(status, '') NOT IN ('done', 'dropped'))`

// tickSaid selects from an answer ?1: the JSON object in it, its summary, and the message to
// publish.
const tickSaid = `SELECT said, summary, json_object('text', summary,
'goals', (SELECT json_group_array(id) FROM goals
WHERE coalesce(status, '') NOT IN ('done', 'dropped') AND id IN
(SELECT json_extract(said, fullkey || '.id') FROM json_each(said, '$.goals')
WHERE json_type(said, '$.goals') = 'array' AND json_type(said, fullkey || '.id') = 'text')),
'patterns', (SELECT json_group_array(json_extract(said, fullkey || '.id'))
FROM json_each(said, '$.patterns') WHERE json_type(said, '$.patterns') = 'array'
AND json_type(said, fullkey || '.id') = 'text' AND json_extract(said, fullkey || '.id') <> ''
AND json_type(said, fullkey || '.description') = 'text'
AND json_extract(said, fullkey || '.description') <> '')) AS result
FROM (SELECT said, CASE json_type(said, '$.summary') WHEN 'text' THEN json_extract(said, '$.summary')
ELSE trim(?1, char(32, 9, 10, 13)) END AS summary FROM (SELECT CASE WHEN NOT json_valid(text) THEN '{}'
WHEN json_type(text) <> 'object' THEN '{}' ELSE text END AS said FROM (SELECT
substr(rtrim(?1, replace(?1, '}', '')), instr(?1, '{')) AS text)))`

// tickKeep stores an answer: ?1 is its JSON object, ?2 the id of the conversation, ?3 the prompt,
// ?4 the answer, ?5 its summary.
const tickKeep = `UPDATE goals SET
progress = CASE WHEN json_type(?1, at || '.progress') IN ('integer', 'real')
THEN min(max(json_extract(?1, at || '.progress'), 0.0), 1.0) ELSE progress END,
status = CASE json_type(?1, at || '.status') WHEN 'text' THEN json_extract(?1, at || '.status')
ELSE status END FROM (SELECT fullkey AS at, json_extract(?1, fullkey || '.id') AS goal
FROM json_each(?1, '$.goals') WHERE json_type(?1, '$.goals') = 'array'
AND json_type(?1, fullkey || '.id') = 'text')
WHERE id = goal AND coalesce(status, '') NOT IN ('done', 'dropped');
INSERT INTO learned_patterns SELECT json_extract(?1, fullkey || '.id'),
CASE json_type(?1, fullkey || '.pattern_type') WHEN 'text'
THEN json_extract(?1, fullkey || '.pattern_type') ELSE '' END,
json_extract(?1, fullkey || '.description'),
CASE WHEN json_type(?1, fullkey || '.confidence') IN ('integer', 'real')
THEN min(max(json_extract(?1, fullkey || '.confidence'), 0.0), 1.0) ELSE 0.5 END
FROM json_each(?1, '$.patterns') WHERE json_type(?1, '$.patterns') = 'array'
AND json_type(?1, fullkey || '.id') = 'text' AND json_extract(?1, fullkey || '.id') <> ''
AND json_type(?1, fullkey || '.description') = 'text'
AND json_extract(?1, fullkey || '.description') <> ''
ON CONFLICT DO UPDATE SET pattern_type = excluded.pattern_type,
description = excluded.description, confidence = excluded.confidence;
INSERT INTO conversations VALUES (?2, CAST(strftime('%s', 'now') AS INTEGER), ?5, 0);
INSERT INTO messages VALUES (?2 || '/1', ?2, 'user', ?3, CAST(strftime('%s', 'now') AS INTEGER)),
(?2 || '/2', ?2, 'assistant', ?4, CAST(strftime('%s', 'now') AS INTEGER))`

// Tick takes one step towards the goals in the agent's memory, for the tick event with this id. It
// sends the model the open goals, the last memories and the patterns with the highest confidence,
// stores the answer in goals, learned_patterns, conversations and messages, and publishes it with
// the type tick_result. It returns the published message. If no goal is open, it asks no model and
// returns nil. An answer that is not JSON counts as a summary and changes no goal. role may be
// empty if the manifest has only one.
func Tick(id, role, instructions string) (json.RawMessage, error) {
	var told struct{ Context string }
	if open, err := Storage.Get(&told, tickContext); !open {
		return nil, err
	}
	params := map[string]any{"prompt": told.Context,
		"system": strings.TrimSpace(tickSystem + "\n\n" + instructions)}
	if role != "" {
		params["role"] = role
	}
	answer, err := AI.text(params)
	if err != nil {
		return nil, err
	}
	var read struct{ Said, Summary, Result string }
	if _, err := Storage.Get(&read, tickSaid, answer); err != nil {
		return nil, err
	}
	if _, err := Storage.Run(tickKeep, read.Said, id, told.Context, answer,
		read.Summary); err != nil {
		return nil, err
	}
	result := json.RawMessage(read.Result)
	_, err = PubSub.Send(result, Type("tick_result"))
	return result, err
}
