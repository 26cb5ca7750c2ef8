package shadows

import (
	"errors"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Caches lists the caches that the caller may see, the most recently used first.
func (s *Store) Caches(c caller.Caller) ([]workspace.CacheInfo, error) {
	all, err := s.Kept.Caches().List()
	if err != nil {
		return nil, problem.New(problem.Failed, "%w", err)
	}
	may, seen := s.o.Permissions(c), []workspace.CacheInfo{}
	for _, info := range all {
		if may.Sees(info.UID) {
			seen = append(seen, info)
		}
	}
	return seen, nil
}

// RemoveCache removes a cache. It returns an error if a jail uses the cache, or if the caller may
// not change it.
func (s *Store) RemoveCache(c caller.Caller, id string) error {
	missing := problem.New(problem.NotFound, "there is no cache %q", id).
		WithHint("jail cache list shows the caches")
	// This check comes first, so that a caller who may not see the cache learns nothing about it.
	all, err := s.Kept.Caches().List()
	if err != nil {
		return problem.New(problem.Failed, "%w", err)
	}
	may := s.o.Permissions(c)
	for _, info := range all {
		if info.ID != id || !may.Sees(info.UID) {
			continue
		}
		if err := may.Change(info.UID, "cache", id); err != nil {
			return err
		}
		switch err := s.Kept.Caches().Remove(id); {
		case errors.Is(err, workspace.ErrNotFound):
			return missing
		case errors.Is(err, workspace.ErrCacheInUse):
			return problem.New(problem.Busy, "%w", err).
				WithHint("jail ps and jail session list show what runs")
		case err != nil:
			return problem.New(problem.Failed, "%w", err)
		}
		return nil
	}
	return missing
}
