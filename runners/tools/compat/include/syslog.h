/* There is no system log; toybox's library compiles against these, and none of
 * the commands built calls them. */
#ifndef JAIL_SYSLOG_H
#define JAIL_SYSLOG_H
#include <stdarg.h>
#define LOG_PID 1
#define LOG_DAEMON 24
#define LOG_AUTH 32
void openlog(const char *ident, int option, int facility);
void vsyslog(int priority, const char *format, va_list args);
void closelog(void);
#endif
