package worker_test

import (
	"os"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }
