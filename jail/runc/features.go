package runc

import (
	"github.com/opencontainers/runc/libcontainer/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// Features says what of the runtime-spec jail-oci carries out. Capabilities are none: a container
// gets no capability, whichever config.json names.
func Features(version string) features.Features {
	yes, no := true, false
	return features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specs.Version,
		Hooks: []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart",
			"poststop"},
		MountOptions: []string{"bind", "rbind", "ro", "rro", "rw", "nosuid", "nodev", "noexec", "exec",
			"private", "rprivate", "relatime", "noatime", "strictatime"},
		Linux: &features.Linux{
			Namespaces:      []string{"cgroup", "ipc", "mount", "network", "pid", "user", "uts"},
			Capabilities:    []string{},
			Cgroup:          &features.Cgroup{V1: &yes, V2: &yes, Systemd: &yes, SystemdUser: &no, Rdma: &yes},
			Apparmor:        &features.Apparmor{Enabled: &yes},
			Selinux:         &features.Selinux{Enabled: &yes},
			IntelRdt:        &features.IntelRdt{Enabled: &no},
			MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &no}},
			NetDevices:      &features.NetDevices{Enabled: &no},
			Seccomp: &features.Seccomp{Enabled: &yes, Actions: seccomp.KnownActions(),
				Operators: seccomp.KnownOperators(), Archs: seccomp.KnownArchs(),
				KnownFlags: seccomp.KnownFlags(), SupportedFlags: seccomp.SupportedFlags()},
		},
		Annotations: map[string]string{"jail.version": version},
	}
}
