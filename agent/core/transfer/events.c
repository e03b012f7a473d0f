/* Events to the caller: a ring whose room is reserved when a transfer or peer comes into being, so that telling never
 * needs memory. */
#include "core/transfer/events.h"

#include "core/transfer/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NO_CAUSE UINT32_MAX         /* as the number of a text: the event has none; */
#define CAUSE_LOST (UINT32_MAX - 1) /* it had one, and memory was short. */
#define CAUSES_LEAST 32u
#define EVENTS_PER_CAUSE 16u /* of a receiver's events one in so many has a text of its own */

static bool grow_causes(rs_node *node, uint32_t capacity) {
    rs_events *e = &node->events;
    if (capacity <= e->cause_capacity)
        return true;
    rs_event_cause *causes = rs_memory_take(&node->allocator, capacity * sizeof *causes);
    for (uint32_t n = e->first_cause; causes && n != e->next_cause; n++)
        memcpy(causes[n % capacity], e->causes[n % e->cause_capacity], sizeof *causes);
    if (!causes)
        return false;
    rs_memory_give(&node->allocator, e->causes);
    e->causes = causes;
    e->cause_capacity = capacity;
    return true;
}

static bool grow(rs_node *node, uint32_t capacity) {
    rs_events *e = &node->events;
    if (!grow_causes(node, CAUSES_LEAST + capacity / EVENTS_PER_CAUSE))
        return false;
    rs_kept_event *ring = rs_memory_take(&node->allocator, capacity * sizeof *ring);
    if (!ring)
        return false;
    for (uint32_t i = 0; i < e->count; i++)
        ring[i] = e->ring[(e->head + i) % e->capacity];
    rs_memory_give(&node->allocator, e->ring);
    e->ring = ring;
    e->head = 0;
    e->capacity = capacity;
    return true;
}

rs_status rs_events_reserve(rs_node *node, uint32_t more) {
    rs_events *e = &node->events;
    uint32_t wanted = e->reserved + more;
    if (wanted > e->capacity && !grow(node, wanted + wanted / 4))
        return RS_ERR_MEMORY;
    e->reserved += more;
    return RS_OK;
}

void rs_events_release(rs_node *node, uint32_t fewer) {
    node->events.reserved -= fewer;
}

void rs_clean_text(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

void rs_format(char *out, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out, size, format, arguments);
    va_end(arguments);
    rs_clean_text(out);
}

void rs_text_keep(rs_node *node, char **kept, const char *text) {
    size_t length = strlen(text);
    if (*kept && strcmp(*kept, text) == 0)
        return;
    rs_memory_give(&node->allocator, *kept);
    *kept = length ? rs_memory_take(&node->allocator, length + 1) : NULL;
    if (*kept)
        memcpy(*kept, text, length + 1);
}

static uint32_t keep_cause(rs_node *node, const char *text) {
    rs_events *e = &node->events;
    if (!text[0])
        return NO_CAUSE;
    uint32_t used = e->next_cause - e->first_cause;
    if (used && strcmp(e->causes[(e->next_cause - 1) % e->cause_capacity], text) == 0)
        return e->next_cause - 1;
    if (used == e->cause_capacity && !grow_causes(node, 2 * e->cause_capacity + CAUSES_LEAST))
        return CAUSE_LOST;
    memcpy(e->causes[e->next_cause % e->cause_capacity], text, sizeof *e->causes);
    return e->next_cause++;
}

/* A caller that polls after each call never fills the ring. For one that does not, the least important go first. */
void rs_emit(rs_node *node, const rs_event *event) {
    rs_events *e = &node->events;
    if (e->count == e->capacity &&
        (event->kind == RS_EV_LOG || event->kind == RS_EV_PHASE || !grow(node, 2 * e->capacity + 1)))
        return;
    rs_kept_event *kept = &e->ring[(e->head + e->count++) % e->capacity];
    memcpy(kept->head, event, sizeof kept->head);
    kept->cause = keep_cause(node, event->cause);
}

bool rs_poll_event(rs_node *node, rs_event *out) {
    rs_events *e = &node->events;
    if (e->count == 0)
        return false;
    const rs_kept_event *kept = &e->ring[e->head];
    memset(out, 0, sizeof *out);
    memcpy(out, kept->head, sizeof kept->head);
    if (kept->cause == CAUSE_LOST)
        rs_format(out->cause, sizeof out->cause, "out of memory: the reason was lost");
    else if (kept->cause != NO_CAUSE)
        memcpy(out->cause, e->causes[(e->first_cause = kept->cause) % e->cause_capacity], sizeof out->cause);
    e->head = (e->head + 1) % e->capacity;
    if (--e->count == 0)
        e->first_cause = e->next_cause = 0;
    return true;
}
