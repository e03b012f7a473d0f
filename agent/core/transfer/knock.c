#include "core/transfer/knock.h"

#include "core/transfer/engine.h"

#define KNOCK_AFTER RS_MS /* OPEN is out, and twice, four times as long after the next ones */
#define KNOCKS_MOST 10u
#define FEW_PART 2u /* more than one in so many are busy, not unlucky: nobody is said anything */

void rs_knock_begin(rs_time now, rs_sending *x) {
    x->knocks = 0;
    x->knocked_all = false;
    x->knock_due = now + KNOCK_AFTER;
}

static bool owes(const rs_sending *x, const rs_recipient *r) {
    return rs_is_active(r) && r->member && rs_is_opened(r) && !r->kept && rs_link_is_up(&r->link) &&
           (!rs_has_accepted(r) || (x->phase == RS_PHASE_ATTEMPT && r->light == RS_LIGHT_AWAITED));
}

/* Whom others carry to may have missed where to report, which nobody answers: it would ask nobody near, and be waited
 * for. To ask all costs the sender a message or two for each who carries. */
static bool should_hear(const rs_recipient *r) {
    return r->carrier && r->reported && rs_is_active(r) && rs_has_accepted(r) && rs_link_is_up(&r->link);
}

void rs_knock_timeout(rs_node *node, rs_time now, rs_sending *x) {
    uint32_t owing = 0;
    if (now < x->knock_due)
        return;
    x->knock_due = ++x->knocks < KNOCKS_MOST ? now + (KNOCK_AFTER << x->knocks) : RS_NEVER;
    if (x->carriers && x->phase == RS_PHASE_HIGH_RATE && !x->knocked_all) {
        x->knocked_all = true;
        for (uint32_t i = 0; i < x->recipient_count; i++)
            if (should_hear(&x->recipients[i]))
                rs_ping(node, now, &x->recipients[i].link);
    }
    for (uint32_t i = 0; i < x->recipient_count; i++)
        owing += owes(x, &x->recipients[i]);
    if (owing == 0 || owing >= x->recipient_count / FEW_PART)
        return;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (owes(x, &x->recipients[i]))
            rs_ping(node, now, &x->recipients[i].link);
}
