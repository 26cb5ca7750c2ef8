// Package models asks language models: it writes a conversation in the form of a model's API, sends
// it through a jail to which the fetch proxy attaches the key, and reads the stream that comes back.
//
//	conversation.go  a conversation that is in no API's form
//	forms.go         the three forms of requests: messages, chat and responses
//	stream.go        the streams of server-sent events that answer them
//	ask.go           asking with patience: 429, 5xx and streams that break off
//	jail.go          the request, as a run of the tool fetch in a jail of its own
package models
