/* The policy of an agent: which users and groups of this server may do what (docs/security.md, "Programs").
 *
 * A file of sections, each of lines "right = subject, subject ...". A subject is a name, a beginning with "*" at its
 * end, or "*"; of applications it is a UUID, or a name that a section [application NAME] gives one. What is not said is
 * not allowed. Who has several sections has the rights of all; [others] is for those who have none. Root and the
 * agent's own user may do everything, whatever the file says: they could read it all anyway. */
#ifndef RS_API_POLICY_H
#define RS_API_POLICY_H

#include <sys/types.h>

#include "api/error.h"

#define RS_POLICY_BYTES_MAX (1u << 20)
#define RS_POLICY_GROUPS_MAX 256u /* of a program; a program of more has none of them but its main one */

typedef enum {
    RS_RIGHT_SEND,      /* to that server */
    RS_RIGHT_PUBLISH,   /* into that group */
    RS_RIGHT_SUBSCRIBE, /* to that group */
    RS_RIGHT_READ,      /* objects and streams of that application */
    RS_RIGHT_WRITE,     /* make, name, pin and send them */
    RS_RIGHT_DELETE,    /* delete them; cancel and leave transfers of them */
    RS_RIGHTS
} rs_right;

/* A program, as the system knows it. */
typedef struct {
    pid_t pid;
    uid_t uid;
    gid_t gid;
    uint32_t group_count;
    gid_t groups[RS_POLICY_GROUPS_MAX];
} rs_policy_who;

/* Numbers of names. False: this machine has none of that name. */
typedef struct {
    bool (*user)(const char *name, uid_t *out);
    bool (*group)(const char *name, gid_t *out);
} rs_policy_names;

typedef struct rs_policy rs_policy;

/* NULL and `error`, which begins with the line's number. `names` NULL: this machine's. */
rs_policy *rs_policy_parse(const char *text, size_t length, const rs_policy_names *names, rs_error *error);
/* Of a file that nobody but root and this process's user can change. NULL and `error`. */
rs_policy *rs_policy_load(const char *path, rs_error *error);
void rs_policy_free(rs_policy *policy);

/* `subject`: a server's or group's name; of READ, WRITE and DELETE the 16 bytes of an application. `policy` NULL:
 * everybody may do everything. */
bool rs_policy_allows(const rs_policy *policy, const rs_policy_who *who, rs_right right, const void *subject);
const char *rs_right_name(rs_right right);
/* Who is at the other end of a unix socket. False with errno. */
bool rs_policy_peer(int socket, rs_policy_who *out);

#endif
