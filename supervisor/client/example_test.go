package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/client"
)

// A tool edits a project; what it did is looked at before it becomes real.
func Example() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	sed := c.Command("sed", "-i", "s/colour/color/g", "guide.md")
	sed.Dir = "/srv/project"
	sed.Limits = []string{"wall=10s", "memory=64MiB"}
	res, err := sed.Output(ctx)
	switch {
	case err != nil:
		log.Fatal("the sandbox failed: ", err)
	case res.ExitCode != 0:
		log.Fatalf("sed failed with %d: %s (limit %v, refused %v)", res.ExitCode, res.Stderr,
			res.Limit, res.Denied)
	case !res.Changes.Any():
		return
	}
	for line, err := range c.Changes(ctx, res.ID, "") {
		if err != nil {
			log.Fatal(err)
		}
		if line.Change != nil {
			fmt.Println(line.Change.Kind, line.Change.Path)
		}
	}
	if err := c.Discard(ctx, res.ID); err != nil {
		log.Fatal(err)
	}
}

// Streams go as they come, both ways.
func ExampleCmd_Run() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Options{Socket: "/run/jail/jail.sock"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sort := c.Command("sort", "-u")
	sort.NoWorkspace = true
	sort.Dir, sort.Stdin, sort.Stdout, sort.Stderr = "/", strings.NewReader("b\na\nb\n"), os.Stdout,
		os.Stderr
	_, err = sort.Run(ctx)
	if refused, ok := errors.AsType[*client.Error](err); ok {
		log.Fatalf("%s: %s; %s", refused.Code, refused.Message, refused.Hint)
	}
}

// A script's commands are jailed tools, each of them.
func ExampleClient_Script() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Script(`grep -rl "$1" . | sort | head -n 5`, "TODO").Output(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d\n%s", res.ExitCode, res.Stdout)
}
