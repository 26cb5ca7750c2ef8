package wire

// Version is the version of jail, as CHANGELOG.md has it.
const Version = "0.8.0"
