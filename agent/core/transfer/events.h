/* Events that wait for the caller, and their words. */
#ifndef RS_CORE_TRANSFER_EVENTS_H
#define RS_CORE_TRANSFER_EVENTS_H

#include "core/transfer/state.h"

rs_status rs_events_reserve(rs_node *node, uint32_t more);
void rs_events_release(rs_node *node, uint32_t fewer);
/* A text that is there seldom: memory is taken for it while it is. NULL afterwards: it is empty, or out of memory. */
void rs_text_keep(rs_node *node, char **kept, const char *text);
void rs_emit(rs_node *node, const rs_event *event);
void rs_format(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
void rs_clean_text(char *text); /* no control characters: causes come from strangers and go to terminals */

#endif
