/* XOR of bodies of any length and place, against one byte at a time. */
#include "check.h"

#include "core/repair/xor.h"

static void xor__is_bytewise_whatever_length_and_alignment(void **unused) {
    (void)unused;
    for (uint32_t a = 0; a < 300; a = a < 70 ? a + 1 : a + 37) {
        for (uint32_t b = 0; b < 300; b = b < 70 ? b + 1 : b + 41) {
            uint32_t longer = a > b ? a : b, length = a;
            uint8_t *into = calloc(longer + 4, 1), *from = malloc(b + 2);
            for (uint32_t i = 0; i < a; i++)
                into[1 + i] = (uint8_t)(i * 7);
            for (uint32_t i = 0; i < b; i++)
                from[1 + i] = (uint8_t)(i * 13 + 5);
            into[0] = into[1 + longer] = 0x55;
            rs_gm_xor_grow(into + 1, &length, from + 1, b);
            assert_int_equal(length, longer);
            for (uint32_t i = 0; i < longer; i++)
                assert_int_equal(into[1 + i], (uint8_t)((i < a ? i * 7 : 0) ^ (i < b ? (uint8_t)(i * 13 + 5) : 0u)));
            assert_int_equal(into[0], 0x55);
            assert_int_equal(into[1 + longer], 0x55);
            free(into);
            free(from);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(xor__is_bytewise_whatever_length_and_alignment)};
    return cmocka_run_group_tests_name("xor", tests, NULL, NULL);
}
