/* Signed batches: each packet is judged alone, whatever is changed is found, and one signature is for a whole batch. */
#include <setjmp.h> /* before cmocka.h */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "daemon/seal/sign.h"

#define TEXT 100u

static uint8_t texts[RS_SIGN_BATCH][TEXT], stamps[RS_SIGN_BATCH][RS_SIGN_STAMP];
static rs_signed batch[RS_SIGN_BATCH];
static rs_signer *signer;
static rs_verifier *verifier;

static int start(void **unused) {
    (void)unused;
    for (unsigned i = 0; i < RS_SIGN_BATCH; i++) {
        memset(texts[i], (int)i + 1, TEXT);
        batch[i] = (rs_signed){.context = {(uint8_t)i, 7},
                               .head = texts[i],
                               .head_length = 4,
                               .rest = texts[i] + 4,
                               .rest_length = TEXT - 4,
                               .stamp = stamps[i]};
    }
    signer = rs_signer_new();
    verifier = rs_verifier_new();
    return signer && verifier ? 0 : -1;
}

static int end(void **unused) {
    (void)unused;
    rs_signer_free(signer);
    rs_verifier_free(verifier);
    return 0;
}

static bool is_right(unsigned i) {
    return rs_verify(verifier, rs_signer_public(signer), RS_SIGNS_STREAM, &batch[i]);
}

static void sign__every_packet_of_every_size_of_batch_is_right_alone(void **unused) {
    (void)unused;
    for (unsigned count = 1; count <= RS_SIGN_BATCH; count++) {
        uint64_t before, after, wrong;
        rs_verifier_count(verifier, &before, &wrong);
        assert_true(rs_sign(signer, RS_SIGNS_STREAM, batch, count));
        for (unsigned i = count; i-- > 0;)
            assert_true(is_right(i));
        rs_verifier_count(verifier, &after, &wrong);
        assert_int_equal(after - before, 1);
        assert_int_equal(wrong, 0);
    }
    assert_false(rs_sign(signer, RS_SIGNS_STREAM, batch, 0));
}

static void sign__any_changed_byte_is_found(void **unused) {
    (void)unused;
    assert_true(rs_sign(signer, RS_SIGNS_STREAM, batch, 5)); /* 8 leaves: 3 digests are on the way */
    assert_true(is_right(4));
    for (unsigned i = 0; i < TEXT; i++) {
        texts[4][i] ^= 1;
        assert_false(is_right(4));
        texts[4][i] ^= 1;
    }
    const unsigned used = RS_SIGN_STAMP - 3 * 16; /* beyond it nothing is looked at */
    for (unsigned i = 0; i < used; i++) {
        stamps[4][i] ^= 0x80;
        assert_false(is_right(4));
        stamps[4][i] ^= 0x80;
    }
    for (unsigned i = 0; i < RS_SIGN_CONTEXT; i++) {
        batch[4].context[i] ^= 1;
        assert_false(is_right(4));
        batch[4].context[i] ^= 1;
    }
    assert_true(is_right(4));
}

static void sign__what_is_signed_for_one_use_or_by_another_is_refused(void **unused) {
    (void)unused;
    rs_signer *other = rs_signer_new();
    assert_true(rs_sign(signer, RS_SIGNS_STREAM, batch, 64));
    assert_false(rs_verify(verifier, rs_signer_public(signer), RS_SIGNS_MESSAGE, &batch[9]));
    assert_false(rs_verify(verifier, rs_signer_public(other), RS_SIGNS_STREAM, &batch[9]));
    memcpy(stamps[9], stamps[8], RS_SIGN_STAMP); /* another packet's, of the same batch */
    assert_false(is_right(9));
    assert_true(is_right(8));
    rs_signer_free(other);
}

static void sign__no_key_and_no_stamp_makes_it_fail_otherwise_than_by_a_no(void **unused) {
    (void)unused;
    const uint8_t none[RS_SIGN_PUBLIC] = {0};
    assert_true(rs_sign(signer, RS_SIGNS_STREAM, batch, 2));
    assert_false(rs_verify(verifier, none, RS_SIGNS_STREAM, &batch[0]));
    memset(stamps[0], 0xff, RS_SIGN_STAMP);
    assert_false(is_right(0));
    memset(stamps[0], 0, RS_SIGN_STAMP);
    assert_false(is_right(0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sign__every_packet_of_every_size_of_batch_is_right_alone),
        cmocka_unit_test(sign__any_changed_byte_is_found),
        cmocka_unit_test(sign__what_is_signed_for_one_use_or_by_another_is_refused),
        cmocka_unit_test(sign__no_key_and_no_stamp_makes_it_fail_otherwise_than_by_a_no),
    };
    return cmocka_run_group_tests_name("sign", tests, start, end);
}
