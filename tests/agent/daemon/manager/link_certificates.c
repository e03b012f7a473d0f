#include "link_certificates.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

static void extend(X509 *certificate, X509 *issuer, int what, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, what, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

credentials credentials_make(const certificate_wish *wish, const credentials *issuer) {
    static long serial;
    bool always = wish->from_s == 0 && wish->until_s == 0;
    credentials c = {.key = EVP_EC_gen("P-256"), .certificate = X509_new()};
    assert_non_null(c.key);
    assert_non_null(c.certificate);
    X509 *signer = issuer ? issuer->certificate : c.certificate;
    X509_set_version(c.certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(c.certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(c.certificate), always ? -3600 : wish->from_s);
    X509_gmtime_adj(X509_getm_notAfter(c.certificate), always ? 3600 : wish->until_s);
    X509_set_pubkey(c.certificate, c.key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(c.certificate), "CN", MBSTRING_ASC,
                               (const unsigned char *)wish->name, -1, -1, 0);
    X509_set_issuer_name(c.certificate, X509_get_subject_name(signer));
    extend(c.certificate, signer, NID_basic_constraints, issuer ? "CA:FALSE" : "critical,CA:TRUE");
    if (wish->alternative)
        extend(c.certificate, signer, NID_subject_alt_name, wish->alternative);
    if (wish->usage)
        extend(c.certificate, signer, NID_ext_key_usage, wish->usage);
    assert_true(X509_sign(c.certificate, issuer ? issuer->key : c.key, EVP_sha256()) > 0);
    return c;
}

void credentials_free(credentials *c) {
    EVP_PKEY_free(c->key);
    X509_free(c->certificate);
    *c = (credentials){0};
}

void credentials_write(const char *folder, const char *name, const credentials *c, const char *password) {
    char path[2][256], draft[256];
    snprintf(path[0], sizeof path[0], "%s/%s.pem", folder, name);
    snprintf(path[1], sizeof path[1], "%s/%s.key", folder, name);
    snprintf(draft, sizeof draft, "%s/draft", folder);
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(draft, "w");
        assert_non_null(file);
        assert_int_equal(i == 0 ? PEM_write_X509(file, c->certificate)
                                : PEM_write_PrivateKey(file, c->key, password ? EVP_aes_128_cbc() : NULL, NULL, 0, NULL,
                                                       (void *)(uintptr_t)password),
                         1);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(rename(draft, path[i]), 0);
    }
}

void tls_peer_open(tls_peer *peer, const credentials *own, const X509 *authority, int version) {
    *peer = (tls_peer){.context = SSL_CTX_new(TLS_server_method())};
    assert_non_null(peer->context);
    SSL_CTX_set_min_proto_version(peer->context, version ? version : TLS1_2_VERSION);
    SSL_CTX_set_max_proto_version(peer->context, version);
    assert_int_equal(SSL_CTX_use_certificate(peer->context, own->certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(peer->context, own->key), 1);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(peer->context), (X509 *)(uintptr_t)authority);
    SSL_CTX_set_verify(peer->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}

void tls_peer_close(tls_peer *peer) {
    SSL_free(peer->ssl);
    SSL_CTX_free(peer->context);
    *peer = (tls_peer){0};
}

/* The result of a call that has not failed; else false, with the alert that was the reason. */
static bool goes_on(tls_peer *peer, int result) {
    int why = SSL_get_error(peer->ssl, result);
    if (result > 0 || why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        return true;
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    snprintf(peer->alert, sizeof peer->alert, "%s", reason ? reason : "");
    return false;
}

bool tls_peer_greet(tls_peer *peer, fixture *f) {
    turn_until(f, f->fd >= 0);
    link_peer_accept(&f->peer);
    assert_true(fcntl(f->peer.fd, F_SETFL, O_NONBLOCK) >= 0);
    SSL_free(peer->ssl);
    peer->ssl = SSL_new(peer->context);
    assert_int_equal(SSL_set_fd(peer->ssl, f->peer.fd), 1);
    SSL_set_accept_state(peer->ssl);
    for (int turns = 0; turns < 100; turns++) {
        ERR_clear_error();
        int done = SSL_do_handshake(peer->ssl);
        if (done == 1)
            return true;
        if (!goes_on(peer, done))
            return false;
        turn(f);
    }
    fail_msg("no handshake: %s", f->text);
    return false;
}

void tls_peer_send(tls_peer *peer, const void *bytes, size_t length) {
    ERR_clear_error();
    assert_int_equal(SSL_write(peer->ssl, bytes, (int)length), (int)length);
}

static void read_all(tls_peer *peer, fixture *f, uint8_t *out, size_t length) {
    int idle = 0;
    for (size_t got = 0; got < length;) {
        ERR_clear_error();
        int n = SSL_read(peer->ssl, out + got, (int)(length - got));
        if (n > 0) {
            got += (size_t)n;
            idle = 0;
            continue;
        }
        assert_true(goes_on(peer, n));
        assert_true(++idle < 100);
        turn(f);
    }
}

uint8_t *tls_peer_read(tls_peer *peer, fixture *f, size_t *length) {
    uint8_t prefix[4];
    read_all(peer, f, prefix, sizeof prefix);
    *length = (size_t)prefix[0] << 24 | (size_t)prefix[1] << 16 | (size_t)prefix[2] << 8 | prefix[3];
    assert_in_range(*length, 1, RS_MANAGER_FRAME_MAX);
    uint8_t *frame = malloc(*length);
    assert_non_null(frame);
    read_all(peer, f, frame, *length);
    return frame;
}

bool tls_peer_poll(tls_peer *peer) {
    uint8_t some[256];
    ERR_clear_error();
    return goes_on(peer, SSL_read(peer->ssl, some, sizeof some));
}
