/* Parsers of numbers with units: nothing may follow, nothing may overflow. */
#include "daemon/units.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct {
    const char *suffix;
    double factor;
} unit;

static const unit byte_units[] = {{"", 1},         {"B", 1},       {"K", 0x1p10},   {"KB", 0x1p10},  {"KiB", 0x1p10},
                                  {"M", 0x1p20},   {"MB", 0x1p20}, {"MiB", 0x1p20}, {"G", 0x1p30},   {"GB", 0x1p30},
                                  {"GiB", 0x1p30}, {"T", 0x1p40},  {"TB", 0x1p40},  {"TiB", 0x1p40}, {NULL, 0}};
static const unit rate_units[] = {{"", 1},       {"K", 1e3},    {"M", 1e6},    {"G", 1e9},    {"T", 1e12},
                                  {"bit", 1},    {"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"bps", 1},
                                  {"kbps", 1e3}, {"Mbps", 1e6}, {"Gbps", 1e9}, {NULL, 0}};
static const unit time_units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {NULL, 0}};

static bool parse(const char *text, const unit *units, bool exact_case, double limit, double *out) {
    char *end;
    if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        return false;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || !isfinite(value))
        return false;
    for (const unit *u = units; u->suffix; u++)
        if ((exact_case ? strcmp(end, u->suffix) : strcasecmp(end, u->suffix)) == 0) {
            *out = value * u->factor;
            return *out <= limit;
        }
    return false;
}

bool rs_parse_bytes(const char *text, uint64_t *out) {
    double value;
    if (!parse(text, byte_units, false, 0x1p62, &value) || value != floor(value))
        return false;
    *out = (uint64_t)value;
    return true;
}

bool rs_parse_rate(const char *text, int64_t *out_bps) {
    double value;
    if (!parse(text, rate_units, false, 1e15, &value))
        return false;
    *out_bps = (int64_t)value;
    return true;
}

bool rs_parse_duration(const char *text, rs_time *out) {
    double value;
    if (strcmp(text, "0") == 0) {
        *out = 0;
        return true;
    }
    if (!parse(text, time_units, true, 1e18, &value))
        return false;
    *out = (rs_time)value;
    return true;
}

bool rs_parse_integer(const char *text, uint64_t low, uint64_t high, uint64_t *out) {
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < low || value > high)
        return false;
    *out = value;
    return true;
}

bool rs_parse_address(const char *text, uint32_t *out) {
    struct in_addr address;
    if (inet_pton(AF_INET, text, &address) != 1)
        return false;
    *out = ntohl(address.s_addr);
    return true;
}

bool rs_parse_endpoint(const char *text, uint32_t *address, uint16_t *port) {
    char host[RS_ADDRESS_TEXT];
    const char *colon = strchr(text, ':');
    uint64_t number;
    if (!colon || (size_t)(colon - text) >= sizeof host || !rs_parse_integer(colon + 1, 1, UINT16_MAX, &number))
        return false;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    *port = (uint16_t)number;
    return rs_parse_address(host, address);
}

const char *rs_address_text(uint32_t address, char out[RS_ADDRESS_TEXT]) {
    snprintf(out, RS_ADDRESS_TEXT, "%u.%u.%u.%u", address >> 24, (address >> 16) & 255, (address >> 8) & 255,
             address & 255);
    return out;
}
