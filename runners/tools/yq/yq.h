/* yq: jq with YAML at both ends, as Debian's package of that name is. What YAML means is libyaml's to say, what a filter means jq's;
 * here stand which plain words are numbers (resolve.c), documents as values (read.c), values as documents (write.c) and the options. */
#ifndef YQ_H
#define YQ_H

#include <stddef.h>
#include "jv.h"

enum { YQ_DEPTH = 250 /* below what jq itself reads and prints */ };

typedef struct {
	char *text;
	size_t length, room;
} yq_text;
void yq_append(yq_text *to, const char *text, size_t length);

/* resolve.c */
typedef enum { YQ_STRING, YQ_NULL, YQ_TRUE, YQ_FALSE, YQ_INT, YQ_FLOAT } yq_kind;
yq_kind yq_resolve(const char *text, size_t length);       /* of a plain word that is read, by YAML 1.2 */
int yq_plain(const char *text, size_t length, int version); /* whether a string can be written plainly, for readers of YAML 1.1 or 1.2 */

/* read.c: appends the documents of a file as JSON, one a line. 0, or 1 where it said what is wrong. */
int yq_read(const char *name, long expansion, yq_text *json);

/* write.c */
typedef struct {
	int on; /* results are written as YAML */
	int width, indentless, start, end, version;
} yq_style;
extern yq_style yq_output;
extern int yq_indentless; /* what libyaml's emitter asks */
int yq_result(jv value, int sorted);
int yq_finish(yq_text *out); /* hands over what was written since the last time; 0, or 1 */

/* yq.c, for jq's reading of its input */
extern int yq_reading;
size_t yq_more(char *buf, size_t size, int *last);

int jq_main(int argc, char *argv[]);

#endif
