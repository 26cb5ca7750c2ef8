package launch_test

import (
	"os"
	"testing"

	"github.com/jail-sandbox/jail/jail/jailtest"
)

func TestMain(m *testing.M) { os.Exit(jailtest.Main(m)) }
