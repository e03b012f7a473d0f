/* Certificates and a manager's end of TLS, for tests of the link. What goes wrong in here fails the test. */
#ifndef RS_TEST_LINK_CERTIFICATES_H
#define RS_TEST_LINK_CERTIFICATES_H

#include "link_fixture.h"

#include <openssl/ssl.h>

typedef struct {
    EVP_PKEY *key;
    X509 *certificate;
} credentials;

typedef struct {
    const char *name;        /* common name */
    const char *alternative; /* subjectAltName, as in "IP:127.0.0.1"; NULL = none */
    const char *usage;       /* extendedKeyUsage; NULL = any */
    long from_s, until_s;    /* from now; both 0 = an hour each way */
} certificate_wish;

/* `issuer` NULL: a CA, signed by itself. */
credentials credentials_make(const certificate_wish *wish, const credentials *issuer);
void credentials_free(credentials *c);
/* Writes folder/name.pem and name.key, as new files in place of the old; `password` NULL = the key is not encrypted. */
void credentials_write(const char *folder, const char *name, const credentials *c, const char *password);

typedef struct {
    SSL_CTX *context;
    SSL *ssl;
    char alert[64]; /* what the agent said against us */
} tls_peer;

/* `version` 0: any from 1.2 on. */
void tls_peer_open(tls_peer *peer, const credentials *own, const X509 *authority, int version);
void tls_peer_close(tls_peer *peer);
/* Accepts the link's connection and shakes hands, while the link turns; false: it failed. */
bool tls_peer_greet(tls_peer *peer, fixture *f);
void tls_peer_send(tls_peer *peer, const void *bytes, size_t length);
/* A whole frame (from malloc) while the link turns. */
uint8_t *tls_peer_read(tls_peer *peer, fixture *f, size_t *length);
/* Does what waits to be done here; the link's turn is the caller's. False: the stream has ended. */
bool tls_peer_poll(tls_peer *peer);

#endif
