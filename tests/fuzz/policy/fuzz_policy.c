/* Policy files: any bytes are a policy, or an error with its line; what a policy allows is asked of all rights. */
#include <stdlib.h>
#include <string.h>

#include "daemon/api/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool number(const char *name, uint32_t *out) {
    *out = (uint32_t)strlen(name);
    return name[0] != 'x';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const rs_policy_names names = {.user = number, .group = number};
    rs_policy_who who = {.uid = 5, .gid = 6, .group_count = 2, .groups = {3, 4}};
    const uint8_t subject[17] = "some application";
    rs_error error = {0};
    char *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    rs_policy *policy = rs_policy_parse(copy, size, &names, &error);
    free(copy);
    if (!policy && (strncmp(error.text, "line ", 5) != 0 || error.code == 0))
        abort();
    for (who.uid = 1; policy && who.uid < 9; who.uid++)
        for (rs_right right = 0; right < RS_RIGHTS; right++)
            (void)rs_policy_allows(policy, &who, right, subject);
    rs_policy_free(policy);
    return 0;
}
