/* Options of groups: text on its way through client, agent and manager, numbers for the engine that knows them. */
#ifndef RS_CORE_GROUPS_OPTIONS_H
#define RS_CORE_GROUPS_OPTIONS_H

#include "core/groups/engine.h"

/* The values of all the engine's options, in its order, where nobody says anything. */
void rs_group_options_usual(const rs_group_engine *engine, uint32_t milli[RS_GROUP_OPTIONS_MOST]);
/* What `text` (NULL: nothing) names is changed in `milli`. False, and why: the engine has no such option, it is named
 * twice, or its value is out of range. */
bool rs_group_options_read(const rs_group_engine *engine, const char *text, uint32_t milli[RS_GROUP_OPTIONS_MOST],
                           char *why, size_t size);
/* All of them but what is left out (`later`), as text that rs_group_options_read takes: the same values are the same
 * text. */
void rs_group_options_write(const rs_group_engine *engine, const uint32_t milli[RS_GROUP_OPTIONS_MOST],
                            char out[RS_GROUP_OPTIONS_TEXT]);

#endif
