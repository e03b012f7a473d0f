#include "core/groups/options.h"

#include <stdio.h>
#include <string.h>

#define NUMBER 16u /* bytes of a value as text */

static void write_number(uint32_t milli, char out[NUMBER]) {
    snprintf(out, NUMBER, "%u.%03u", milli / 1000 % 1000000, milli % 1000);
    for (size_t last = strlen(out) - 1; out[last] == '0' || out[last] == '.'; last--) {
        bool point = out[last] == '.';
        out[last] = 0;
        if (point)
            break;
    }
}

/* Digits, and up to three more behind a point. */
static bool read_number(const char *text, size_t length, uint32_t *milli) {
    uint64_t value = 0, unit = 1000;
    bool fraction = false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '.' && !fraction && i > 0 && i + 1 < length) {
            fraction = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9' || unit == 1 || value > UINT32_MAX)
            return false;
        if (fraction)
            unit /= 10;
        value = fraction ? value + (uint64_t)(text[i] - '0') * unit : value * 10 + (uint64_t)(text[i] - '0') * 1000;
    }
    *milli = (uint32_t)value;
    return length > 0 && value <= UINT32_MAX;
}

static bool says_none(const rs_group_engine *engine, const char *name, size_t length, char *why, size_t size) {
    int used =
        snprintf(why, size, "%s has no option '%.*s'; it has ", engine->name, (int)(length < 32 ? length : 32), name);
    for (uint32_t i = 0; i < engine->option_count && used >= 0 && (size_t)used < size; i++)
        used += snprintf(why + used, size - (size_t)used, "%s%s", i ? ", " : "", engine->options[i].name);
    if (engine->option_count == 0 && used >= 0 && (size_t)used < size)
        snprintf(why + used, size - (size_t)used, "none");
    return false;
}

static bool says_range(const rs_group_engine *engine, const rs_group_option *o, const char *value, size_t length,
                       char *why, size_t size) {
    char least[NUMBER], most[NUMBER];
    write_number(o->least_milli, least);
    write_number(o->most_milli, most);
    snprintf(why, size, "%s %.*s is out of range: %s of %s is %s%s to %s", o->name, (int)(length < 32 ? length : 32),
             value, o->name, engine->name, o->fraction ? "" : "a whole number from ", least, most);
    return false;
}

void rs_group_options_usual(const rs_group_engine *engine, uint32_t milli[RS_GROUP_OPTIONS_MOST]) {
    for (uint32_t i = 0; i < engine->option_count; i++)
        milli[i] = engine->options[i].usual_milli;
}

bool rs_group_options_read(const rs_group_engine *engine, const char *text, uint32_t milli[RS_GROUP_OPTIONS_MOST],
                           char *why, size_t size) {
    uint32_t named = 0;
    for (const char *at = text ? text : ""; *at;) {
        size_t length = strcspn(at, ","), name = strcspn(at, "=,");
        uint32_t i = 0;
        while (i < engine->option_count &&
               (strlen(engine->options[i].name) != name || strncmp(engine->options[i].name, at, name) != 0))
            i++;
        if (i == engine->option_count)
            return says_none(engine, at, name, why, size);
        const rs_group_option *o = &engine->options[i];
        const char *value = at + name + (name < length);
        size_t value_length = length - name - (name < length);
        if (named >> i & 1) {
            snprintf(why, size, "%s is named twice in the options '%.100s'", o->name, text);
            return false;
        }
        named |= UINT32_C(1) << i;
        if (!read_number(value, value_length, &milli[i]) || milli[i] < o->least_milli || milli[i] > o->most_milli ||
            (!o->fraction && milli[i] % 1000 != 0))
            return says_range(engine, o, value, value_length, why, size);
        at += length + (at[length] == ',');
    }
    return true;
}

void rs_group_options_write(const rs_group_engine *engine, const uint32_t milli[RS_GROUP_OPTIONS_MOST],
                            char out[RS_GROUP_OPTIONS_TEXT]) {
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < engine->option_count; i++) {
        const rs_group_option *o = &engine->options[i];
        char value[NUMBER];
        if (o->later && milli[i] == o->usual_milli)
            continue;
        write_number(milli[i], value);
        int more = snprintf(out + used, RS_GROUP_OPTIONS_TEXT - used, "%s%s=%s", used ? "," : "", o->name, value);
        used += more > 0 && used + (size_t)more < RS_GROUP_OPTIONS_TEXT ? (size_t)more : 0;
    }
}
