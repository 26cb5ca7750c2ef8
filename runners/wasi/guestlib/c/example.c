// Prints the status and the body of each URL.
#include <stdio.h>
#include <stdlib.h>

#include "jail_fetch.h"

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		int status;
		size_t size;
		char *body = jail_fetch_get(argv[i], &status, &size);
		if (!body) {
			fprintf(stderr, "%s: %s\n", argv[i], jail_fetch_error());
			return 1;
		}
		printf("%d %.*s\n", status, (int)size, body);
		free(body);
	}
	return 0;
}
