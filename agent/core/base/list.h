/* Circular doubly linked lists through members of what they hold. A member that is in no list points at itself. */
#ifndef RS_CORE_LIST_H
#define RS_CORE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rs_list {
    struct rs_list *prev, *next;
} rs_list;

#define RS_HOLDER(type, member, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline void rs_list_init(rs_list *l) {
    l->prev = l->next = l;
}

static inline bool rs_list_empty(const rs_list *l) {
    return l->next == l;
}

static inline void rs_list_remove(rs_list *l) {
    l->prev->next = l->next;
    l->next->prev = l->prev;
    rs_list_init(l);
}

/* At the end; a member of another list leaves it first. */
static inline void rs_list_append(rs_list *list, rs_list *member) {
    rs_list_remove(member);
    member->prev = list->prev;
    member->next = list;
    list->prev->next = member;
    list->prev = member;
}

/* Into the list unless it is in one; out of it. */
static inline void rs_list_keep(rs_list *list, rs_list *member, bool in) {
    if (in && rs_list_empty(member))
        rs_list_append(list, member);
    else if (!in)
        rs_list_remove(member);
}

#endif
