package supervisor

// Version is the version of jail, as CHANGELOG.md has it.
const Version = "0.7.1"
