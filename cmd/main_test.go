package cmd_test

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(runMain(m)) }
