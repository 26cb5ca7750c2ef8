package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// toyboxCommands reads the names of toybox's commands, and what each is for from
// the help that toybox's build collects as C strings. Those that are said already
// are left out: some of toybox's names have no help of their own.
func toyboxCommands(names, help string, said []command) ([]command, error) {
	list, err := os.ReadFile(names)
	if err != nil {
		return nil, err
	}
	about, err := readHelp(help)
	if err != nil {
		return nil, err
	}
	var commands []command
	for _, name := range strings.Fields(string(list)) {
		if slices.ContainsFunc(said, func(c command) bool { return c.Name == name }) {
			continue
		}
		text, ok := sentence(about, name)
		if !ok {
			return nil, fmt.Errorf("%s: no help for %s", help, name)
		}
		commands = append(commands, command{Name: name, Module: "toybox.wasm", About: text})
	}
	return commands, nil
}

// readHelp reads lines of the form #define HELP_name "text".
func readHelp(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	help := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "#define HELP_")
		if !ok {
			continue
		}
		command, quoted, ok := strings.Cut(strings.TrimSpace(rest), " ")
		if !ok {
			continue
		}
		// Tabs stand in these strings as they are, which Go would refuse.
		text, err := strconv.Unquote(strings.ReplaceAll(quoted, "\t", `\t`))
		if err != nil {
			return nil, fmt.Errorf("%s: help of %s: %w", name, command, err)
		}
		help[command] = text
	}
	return help, nil
}

// sentence is the first sentence of a command's help after its usage line.
func sentence(help map[string]string, name string) (string, bool) {
	text, ok := help[name]
	for range 3 {
		other, see := strings.CutPrefix(strings.ToLower(text), "see ")
		if !see {
			break
		}
		text, ok = help[strings.TrimSpace(other)]
	}
	_, text, found := strings.Cut(text, "\n\n")
	if !ok || !found {
		return "", false
	}
	text, _, _ = strings.Cut(text, "\n\n")
	text = strings.Join(strings.Fields(text), " ")
	if end := strings.Index(text, ". "); end > 0 {
		text = text[:end+1]
	}
	if text != "" && !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text, text != ""
}
