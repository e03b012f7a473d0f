/* How a group delivers, as text: its order, and behind it what is not usual: "total", "sender,guarantee=reliable",
 * "total,slow=drop". The order is `none` or `fifo` (best effort: docs/groups.md), `sender` or `total`
 * (docs/guarantees.md). Settings come in the order of the fields below, so that the same is the same text. */
#ifndef RS_API_GROUP_DELIVERY_H
#define RS_API_GROUP_DELIVERY_H

#include <stdbool.h>
#include <string.h>

#define RS_GROUP_DELIVERY_TEXT 48u /* bytes, with the 0 behind it */

/* What happens when a program does not take its messages in time. */
typedef enum { RS_SLOW_WAIT, RS_SLOW_DROP, RS_SLOW_DISCONNECT } rs_group_slow;

typedef struct {
    bool guaranteed; /* `sender` or `total` */
    bool total;
    bool tells_views; /* virtual synchrony: programs get views, too; else the guarantee is `reliable` */
    bool fifo;
    rs_group_slow slow;
} rs_group_delivery;

/* Whether the text goes on with `word`; then moves behind it. */
static inline bool rs_group_delivery_take(const char **text, const char *word) {
    size_t length = strlen(word);
    bool is = strncmp(*text, word, length) == 0 && ((*text)[length] == '\0' || (*text)[length] == ',');
    *text += is ? length : 0;
    return is;
}

/* False: it is none. */
static inline bool rs_group_delivery_parse(const char *text, rs_group_delivery *out) {
    *out = (rs_group_delivery){.tells_views = true};
    if (strnlen(text, RS_GROUP_DELIVERY_TEXT) >= RS_GROUP_DELIVERY_TEXT)
        return false;
    out->total = rs_group_delivery_take(&text, "total");
    out->guaranteed = out->total || rs_group_delivery_take(&text, "sender");
    if (!out->guaranteed) {
        out->fifo = rs_group_delivery_take(&text, "fifo");
        return (out->fifo || rs_group_delivery_take(&text, "none")) && *text == '\0';
    }
    if (rs_group_delivery_take(&text, ",guarantee=reliable"))
        out->tells_views = false;
    if (rs_group_delivery_take(&text, ",slow=drop"))
        out->slow = RS_SLOW_DROP;
    else if (rs_group_delivery_take(&text, ",slow=disconnect"))
        out->slow = RS_SLOW_DISCONNECT;
    return *text == '\0';
}

#endif
