package config

import "github.com/jail-sandbox/jail/supervisor/wire"

// Version is the version of jail.
const Version = wire.Version
