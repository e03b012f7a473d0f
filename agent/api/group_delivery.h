/* How a group delivers, as text: its order, and behind it what is not usual: "total", "sender,guarantee=reliable",
 * "total,slow=drop,keep=64M". The order is `none` or `fifo` (best effort: docs/groups.md), `sender`, `agreed` or
 * `total` (docs/guarantees.md). Settings come in the order of the fields below, so that the same is the same text. */
#ifndef RS_API_GROUP_DELIVERY_H
#define RS_API_GROUP_DELIVERY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define RS_GROUP_DELIVERY_TEXT 80u /* bytes, with the 0 behind it */

/* What happens when a program does not take its messages in time. */
typedef enum { RS_SLOW_WAIT, RS_SLOW_DROP, RS_SLOW_DISCONNECT } rs_group_slow;

typedef struct {
    bool guaranteed;  /* `sender`, `agreed` or `total` */
    bool total;       /* one order for all, ... */
    bool agreed;      /* ... in which a message is not held back until all have it */
    bool tells_views; /* virtual synchrony: programs get views, too; else the guarantee is `reliable` */
    bool fifo;
    rs_group_slow slow;
    uint64_t keep_bytes; /* messages that are kept for replay, in order `total`: so many bytes of them, ... */
    uint64_t keep_ns;    /* ... or so long; 0, both: none are */
    bool keep_on_disk;
} rs_group_delivery;

/* Whether the text goes on with `word`; then moves behind it. */
static inline bool rs_group_delivery_take(const char **text, const char *word) {
    size_t length = strlen(word);
    bool is = strncmp(*text, word, length) == 0 && ((*text)[length] == '\0' || (*text)[length] == ',');
    *text += is ? length : 0;
    return is;
}

/* ",keep=64M" or ",keep=10m", and behind it perhaps ",keep-on=disk": sizes by K, M, G (powers of 1024), times by s, m,
 * h, d. False: it begins so, and is none. */
static inline bool rs_group_delivery_keep(const char **text, rs_group_delivery *out) {
    static const char units[] = "KMGsmhd";
    static const uint64_t of[] = {UINT64_C(1) << 10, UINT64_C(1) << 20, UINT64_C(1) << 30, 1, 60, 3600, 86400};
    uint64_t value = 0;
    if (strncmp(*text, ",keep=", 6) != 0)
        return true;
    const char *at = *text + 6, *begin = at;
    for (; *at >= '0' && *at <= '9' && at - begin < 7; at++)
        value = 10 * value + (uint64_t)(*at - '0');
    const char *unit = *at ? strchr(units, *at) : NULL;
    if (*begin == '0' || at == begin || !unit || (at[1] != '\0' && at[1] != ','))
        return false;
    if (unit - units < 3)
        out->keep_bytes = value * of[unit - units];
    else
        out->keep_ns = value * of[unit - units] * UINT64_C(1000000000);
    *text = at + 1;
    out->keep_on_disk = rs_group_delivery_take(text, ",keep-on=disk");
    return out->total && !out->agreed;
}

static inline bool rs_group_delivery_keeps(const rs_group_delivery *delivery) {
    return delivery->keep_bytes > 0 || delivery->keep_ns > 0;
}

/* False: it is none. */
static inline bool rs_group_delivery_parse(const char *text, rs_group_delivery *out) {
    *out = (rs_group_delivery){.tells_views = true};
    if (strnlen(text, RS_GROUP_DELIVERY_TEXT) >= RS_GROUP_DELIVERY_TEXT)
        return false;
    out->agreed = rs_group_delivery_take(&text, "agreed");
    out->total = out->agreed || rs_group_delivery_take(&text, "total");
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
    return rs_group_delivery_keep(&text, out) && *text == '\0';
}

#endif
