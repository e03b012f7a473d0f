#include "daemon/api/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/uuid.h"
#include "api/wire.h"

#define SECTIONS_MAX 4096u
#define APPLICATIONS_MAX 4096u
#define LINE_MAX_BYTES 65536u

typedef enum { SECTION_USER, SECTION_GROUP, SECTION_OTHERS, SECTION_APPLICATION } section_kind;

typedef struct {
    char *text; /* of servers and groups: without the "*" */
    uint8_t app[16];
    bool all_after; /* "*" at its end */
} subject;

typedef struct {
    subject *subjects;
    uint32_t count;
    bool said;
} right_list;

typedef struct {
    section_kind kind;
    uint32_t number; /* uid or gid */
    right_list rights[RS_RIGHTS];
} section;

typedef struct {
    char *name;
    uint8_t id[16];
    bool said;
} application;

struct rs_policy {
    section *sections;
    uint32_t section_count;
    application *applications;
    uint32_t application_count;
};

typedef struct {
    rs_policy *policy;
    const rs_policy_names *names;
    rs_error *error;
    uint32_t line;
    section *section;         /* the one that lines belong to; NULL: none yet, or an application's */
    application *application; /* likewise */
} parser;

static const char *const right_names[RS_RIGHTS] = {"send", "publish", "subscribe", "read", "write", "delete"};

const char *rs_right_name(rs_right right) {
    return right_names[right];
}

static bool is_of_applications(rs_right right) {
    return right >= RS_RIGHT_READ;
}

__attribute__((format(printf, 2, 3))) static bool wrong(parser *p, const char *format, ...) {
    char text[ROSTRUM_TEXT_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return rs_error_set(p->error, ROSTRUM_ERR_INVALID, "line %u: %s", p->line, text);
}

static bool no_memory(parser *p) {
    return rs_error_set(p->error, ROSTRUM_ERR_NO_ROOM, "line %u: out of memory", p->line);
}

/* Without blanks at its ends. */
static char *trim(char *text) {
    text += strspn(text, " \t");
    for (size_t length = strlen(text); length > 0 && strchr(" \t", text[length - 1]); length--)
        text[length - 1] = '\0';
    return text;
}

/* ------------------------------------------------------------------------------------------------------- sections */

static bool find_number(parser *p, section_kind kind, const char *name, uint32_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long number = strtoul(name, &end, 10);
    if (name[0] >= '0' && name[0] <= '9' && *end == '\0' && errno == 0 && number < UINT32_MAX) {
        *out = (uint32_t)number;
        return true;
    }
    bool found = kind == SECTION_USER ? p->names->user(name, out) : p->names->group(name, out);
    const char *what = kind == SECTION_USER ? "user" : "group";
    return found ||
           wrong(p, "this machine has no %s %.64s; make it, write its number, or remove the section", what, name);
}

static section *add_section(parser *p, section_kind kind, uint32_t number) {
    rs_policy *policy = p->policy;
    for (uint32_t i = 0; i < policy->section_count; i++)
        if (policy->sections[i].kind == kind && policy->sections[i].number == number) {
            (void)wrong(p, "there is a section for it already; put its lines there");
            return NULL;
        }
    if (policy->section_count == SECTIONS_MAX) {
        (void)wrong(p, "a policy has %u sections at most", SECTIONS_MAX);
        return NULL;
    }
    section *more = realloc(policy->sections, (policy->section_count + 1) * sizeof *more);
    if (!more) {
        (void)no_memory(p);
        return NULL;
    }
    policy->sections = more;
    section *one = &more[policy->section_count++];
    *one = (section){.kind = kind, .number = number};
    return one;
}

static application *find_application(const rs_policy *policy, const char *name) {
    for (uint32_t i = 0; i < policy->application_count; i++)
        if (strcmp(policy->applications[i].name, name) == 0)
            return &policy->applications[i];
    return NULL;
}

static application *add_application(parser *p, const char *name) {
    rs_policy *policy = p->policy;
    uint8_t unused[16];
    if (!rs_api_is_name(name, strlen(name)) || strlen(name) > ROSTRUM_NAME_MAX || strpbrk(name, ",*") ||
        rs_uuid_parse(name, unused) || find_application(policy, name) ||
        policy->application_count == APPLICATIONS_MAX) {
        (void)wrong(p, "an application's name is text without \",\" and \"*\", no UUID, and given once");
        return NULL;
    }
    application *more = realloc(policy->applications, (policy->application_count + 1) * sizeof *more);
    if (more)
        policy->applications = more;
    char *copy = more ? strdup(name) : NULL;
    if (!copy) {
        (void)no_memory(p);
        return NULL;
    }
    application *one = &more[policy->application_count++];
    *one = (application){.name = copy};
    return one;
}

/* "[user alice]" without the brackets. */
static bool begin_section(parser *p, char *title) {
    if (p->application && !p->application->said)
        return wrong(p, "[application %.64s] before this line needs a line \"id = UUID\"", p->application->name);
    p->section = NULL;
    p->application = NULL;
    title = trim(title);
    if (strcmp(title, "others") == 0) {
        p->section = add_section(p, SECTION_OTHERS, 0);
        return p->section != NULL;
    }
    size_t word = strcspn(title, " \t");
    char *name = trim(title + word);
    bool user = word == 4 && strncmp(title, "user", word) == 0, group = word == 5 && strncmp(title, "group", word) == 0;
    bool names_application = word == 11 && strncmp(title, "application", word) == 0;
    if ((!user && !group && !names_application) || name[0] == '\0')
        return wrong(p, "a section is [user NAME], [group NAME], [others] or [application NAME]");
    if (names_application) {
        p->application = add_application(p, name);
        return p->application != NULL;
    }
    uint32_t number;
    section_kind kind = user ? SECTION_USER : SECTION_GROUP;
    if (!find_number(p, kind, name, &number))
        return false;
    p->section = add_section(p, kind, number);
    return p->section != NULL;
}

/* ---------------------------------------------------------------------------------------------------------- lines */

static bool take_application(parser *p, subject *one, const char *text) {
    if (strcmp(text, "*") == 0) {
        one->all_after = true;
        return true;
    }
    const application *named = find_application(p->policy, text);
    if (named && named->said)
        memcpy(one->app, named->id, sizeof one->app);
    return (named && named->said) || rs_uuid_parse(text, one->app) ||
           wrong(p, "\"%.64s\" is no UUID, and no section [application %.64s] before this line gives it one", text,
                 text);
}

static bool take_name(parser *p, subject *one, char *text) {
    size_t length = strlen(text);
    one->all_after = text[length - 1] == '*';
    text[length - one->all_after] = '\0';
    if (strchr(text, '*'))
        return wrong(p, "\"*\" stands at the end of a name, or alone");
    if (length > ROSTRUM_NAME_MAX || (text[0] && !rs_api_is_name(text, strlen(text))))
        return wrong(p, "a name is UTF-8 of %d bytes at most", ROSTRUM_NAME_MAX);
    one->text = strdup(text);
    return one->text || no_memory(p);
}

static bool take_subjects(parser *p, rs_right right, char *value) {
    right_list *list = &p->section->rights[right];
    if (list->said)
        return wrong(p, "\"%s\" is said twice in this section; put all into one line", right_names[right]);
    list->said = true;
    if (value[0] == '\0')
        return true;
    uint32_t count = 1;
    for (const char *at = value; *at; at++)
        count += *at == ',';
    list->subjects = calloc(count, sizeof *list->subjects);
    if (!list->subjects)
        return no_memory(p);
    for (char *at = value, *next; at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = '\0';
        at = trim(at);
        if (at[0] == '\0')
            return wrong(p, "there is nothing between two commas, or behind the last");
        subject *one = &list->subjects[list->count++];
        if (!(is_of_applications(right) ? take_application(p, one, at) : take_name(p, one, at)))
            return false;
    }
    return true;
}

static bool take_line(parser *p, char *line) {
    line = trim(line);
    if (line[0] == '\0' || line[0] == '#')
        return true;
    if (line[0] == '[') {
        size_t length = strlen(line);
        if (line[length - 1] != ']')
            return wrong(p, "a section's line ends with \"]\"");
        line[length - 1] = '\0';
        return begin_section(p, line + 1);
    }
    char *equals = strchr(line, '=');
    if (!equals)
        return wrong(p, "a line is \"right = subject, ...\", [section] or # a comment");
    *equals = '\0';
    const char *key = trim(line);
    char *value = trim(equals + 1);
    if (p->application) {
        if (strcmp(key, "id") != 0 || p->application->said || !rs_uuid_parse(value, p->application->id))
            return wrong(p, "an application has one line, \"id = UUID\"");
        p->application->said = true;
        return true;
    }
    if (!p->section)
        return wrong(p, "a section is needed before, such as [user NAME] or [others]");
    for (rs_right right = 0; right < RS_RIGHTS; right++)
        if (strcmp(key, right_names[right]) == 0)
            return take_subjects(p, right, value);
    return wrong(p, "there is no right \"%.64s\": send, publish, subscribe, read, write, delete", key);
}

static bool parse_lines(parser *p, const char *text, size_t length) {
    char *line = malloc(LINE_MAX_BYTES);
    bool ok = line || no_memory(p);
    while (ok && length > 0) {
        const char *end = memchr(text, '\n', length);
        size_t bytes = end ? (size_t)(end - text) : length, rest = bytes + (end != NULL);
        p->line++;
        if (bytes >= LINE_MAX_BYTES || memchr(text, '\0', bytes)) {
            ok = wrong(p, "a line has at most %u bytes of text", LINE_MAX_BYTES - 1);
            break;
        }
        memcpy(line, text, bytes);
        line[bytes - (bytes > 0 && line[bytes - 1] == '\r')] = '\0';
        ok = take_line(p, line);
        text += rest;
        length -= rest;
    }
    free(line);
    if (ok && p->application && !p->application->said)
        ok = wrong(p, "[application %.64s] needs a line \"id = UUID\"", p->application->name);
    return ok;
}

static bool user_here(const char *name, uid_t *out) {
    const struct passwd *found = getpwnam(name);
    if (found)
        *out = found->pw_uid;
    return found != NULL;
}

static bool group_here(const char *name, gid_t *out) {
    const struct group *found = getgrnam(name);
    if (found)
        *out = found->gr_gid;
    return found != NULL;
}

rs_policy *rs_policy_parse(const char *text, size_t length, const rs_policy_names *names, rs_error *error) {
    static const rs_policy_names here = {.user = user_here, .group = group_here};
    rs_policy *policy = calloc(1, sizeof *policy);
    parser p = {.policy = policy, .names = names ? names : &here, .error = error};
    if (policy && parse_lines(&p, text, length))
        return policy;
    if (!policy)
        (void)no_memory(&p);
    rs_policy_free(policy);
    return NULL;
}

/* Who can change the policy has every right of it. */
static bool is_safe(int fd, size_t *size, rs_error *error) {
    struct stat info;
    if (fstat(fd, &info) < 0)
        return rs_error_system(error, errno, "it cannot be examined");
    if (!S_ISREG(info.st_mode) || info.st_size > RS_POLICY_BYTES_MAX)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "it is no file of at most %u bytes", RS_POLICY_BYTES_MAX);
    if ((info.st_uid != 0 && info.st_uid != geteuid()) || (info.st_mode & (S_IWGRP | S_IWOTH)))
        return rs_error_set(error, ROSTRUM_ERR_INVALID,
                            "others than root and the agent's user can change it: chown root and chmod go-w it");
    *size = (size_t)info.st_size;
    return true;
}

rs_policy *rs_policy_load(const char *path, rs_error *error) {
    rs_error why = {0};
    rs_policy *policy = NULL;
    size_t size = 0, got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char *text = NULL;
    if (fd < 0)
        rs_error_system(&why, errno, "it cannot be opened");
    else if (is_safe(fd, &size, &why) && !(text = malloc(size + 1)))
        rs_error_set(&why, ROSTRUM_ERR_NO_ROOM, "out of memory");
    while (text && got < size) {
        ssize_t now = read(fd, text + got, size - got);
        if (now <= 0)
            break;
        got += (size_t)now;
    }
    if (text)
        policy = rs_policy_parse(text, got, NULL, &why);
    free(text);
    if (fd >= 0)
        close(fd);
    if (!policy)
        rs_error_set(error, why.code, "policy %.150s: %.300s", path, why.text);
    return policy;
}

void rs_policy_free(rs_policy *policy) {
    if (!policy)
        return;
    for (uint32_t i = 0; i < policy->section_count; i++)
        for (rs_right right = 0; right < RS_RIGHTS; right++) {
            right_list *list = &policy->sections[i].rights[right];
            for (uint32_t k = 0; k < list->count; k++)
                free(list->subjects[k].text);
            free(list->subjects);
        }
    for (uint32_t i = 0; i < policy->application_count; i++)
        free(policy->applications[i].name);
    free(policy->sections);
    free(policy->applications);
    free(policy);
}

/* ------------------------------------------------------------------------------------------------------- questions */

static bool matches(const subject *one, rs_right right, const void *wanted) {
    if (is_of_applications(right))
        return one->all_after || memcmp(one->app, wanted, sizeof one->app) == 0;
    return one->all_after ? strncmp(one->text, wanted, strlen(one->text)) == 0 : strcmp(one->text, wanted) == 0;
}

static bool grants(const section *s, rs_right right, const void *wanted) {
    const right_list *list = &s->rights[right];
    for (uint32_t i = 0; i < list->count; i++)
        if (matches(&list->subjects[i], right, wanted))
            return true;
    return false;
}

static bool is_for(const section *s, const rs_policy_who *who) {
    if (s->kind == SECTION_USER)
        return s->number == who->uid;
    if (s->kind != SECTION_GROUP)
        return false;
    bool in = s->number == who->gid;
    for (uint32_t i = 0; i < who->group_count && !in; i++)
        in = s->number == who->groups[i];
    return in;
}

bool rs_policy_allows(const rs_policy *policy, const rs_policy_who *who, rs_right right, const void *wanted) {
    if (!policy || who->uid == 0 || who->uid == geteuid())
        return true;
    const section *others = NULL;
    bool known = false;
    for (uint32_t i = 0; i < policy->section_count; i++) {
        const section *s = &policy->sections[i];
        if (s->kind == SECTION_OTHERS)
            others = s;
        if (!is_for(s, who))
            continue;
        known = true;
        if (grants(s, right, wanted))
            return true;
    }
    return !known && others && grants(others, right, wanted);
}

bool rs_policy_peer(int socket, rs_policy_who *out) {
    struct ucred credentials = {0};
    socklen_t length = sizeof credentials;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
        return false;
    out->pid = credentials.pid;
    out->uid = credentials.uid;
    out->gid = credentials.gid;
    length = sizeof out->groups;
    /* ERANGE: so many groups that none are told; the program keeps the rights of its user and its main group. */
    bool told = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, out->groups, &length) == 0;
    out->group_count = told ? (uint32_t)(length / sizeof out->groups[0]) : 0;
    return true;
}
