/* Events to the caller: a ring whose room is reserved when a transfer or peer comes into being, so that telling never
 * needs memory. */
#include "core/transfer/events.h"

#include "core/transfer/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

rs_status rs_events_reserve(rs_node *node, uint32_t more) {
    rs_events *e = &node->events;
    if (e->reserved + more > e->capacity) {
        uint32_t capacity = (e->reserved + more) * 2;
        rs_event *ring = rs_memory_take(&node->allocator, capacity * sizeof *ring);
        if (!ring)
            return RS_ERR_MEMORY;
        for (uint32_t i = 0; i < e->count; i++)
            ring[i] = e->ring[(e->head + i) % e->capacity];
        rs_memory_give(&node->allocator, e->ring);
        e->ring = ring;
        e->head = 0;
        e->capacity = capacity;
    }
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

/* A caller that polls after each call never fills the ring. For one that does not, the least important go first. */
void rs_emit(rs_node *node, const rs_event *event) {
    rs_events *e = &node->events;
    if (e->count == e->capacity) {
        if (event->kind == RS_EV_LOG || event->kind == RS_EV_PHASE || rs_events_reserve(node, e->capacity) != RS_OK)
            return;
        e->reserved -= e->capacity / 4;
    }
    e->ring[(e->head + e->count++) % e->capacity] = *event;
}

bool rs_poll_event(rs_node *node, rs_event *out) {
    rs_events *e = &node->events;
    if (e->count == 0)
        return false;
    *out = e->ring[e->head];
    e->head = (e->head + 1) % e->capacity;
    e->count--;
    return true;
}
