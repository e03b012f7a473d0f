#include "daemon/manager/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define AGENT "rostrum:agent:"
#define TENANT "rostrum:tenant:"

enum { FILES = 3, WRITE_MAX = 1 << 14 };

typedef struct {
    struct timespec changed;
    ino_t inode;
    off_t size;
} stamp;

struct rs_tls_identity {
    rs_tls_files files;
    stamp seen[FILES];
    SSL_CTX *context;
    BIO_METHOD *socket;
    uint64_t readings; /* of the files, that were of use */
};

struct rs_tls {
    rs_tls_identity *identity;
    SSL *ssl;
    int fd;
    int socket_error; /* errno of the last send or recv that failed */
    bool shaken, failed, wants_write;
    bool peer;        /* of an agent, not of the manager */
    uint64_t held_at; /* the reading of the files by which its certificate was found good */
    char address[INET_ADDRSTRLEN];
    char text[RS_TLS_TEXT];
};

__attribute__((format(printf, 2, 3))) static void say(char text[RS_TLS_TEXT], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, RS_TLS_TEXT, format, arguments);
    va_end(arguments);
}

/* ---- the socket, as OpenSSL sees it ---- */

static int socket_write(BIO *bio, const char *bytes, int length) {
    rs_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t n = send(tls->fd, bytes, (size_t)length, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    else if (n < 0)
        tls->socket_error = errno;
    return (int)n;
}

static int socket_read(BIO *bio, char *out, int size) {
    rs_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t n = recv(tls->fd, out, (size_t)size, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    else if (n < 0)
        tls->socket_error = errno;
    return (int)n;
}

static long socket_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *socket_method(void) {
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "the manager's socket");
    if (method && BIO_meth_set_write(method, socket_write) && BIO_meth_set_read(method, socket_read) &&
        BIO_meth_set_ctrl(method, socket_control))
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* ---- files ---- */

static const char *file_at(const rs_tls_files *files, int index) {
    return index == 0 ? files->certificate : index == 1 ? files->key : files->authority;
}

/* False with the reason if one is not there, or not readable. */
static bool look(const rs_tls_files *files, stamp out[FILES], char text[RS_TLS_TEXT]) {
    for (int i = 0; i < FILES; i++) {
        struct stat status;
        FILE *file = fopen(file_at(files, i), "re");
        if (!file || fstat(fileno(file), &status) < 0) {
            say(text, "%s cannot be read: %s", file_at(files, i), strerror(errno));
            if (file)
                fclose(file);
            return false;
        }
        fclose(file);
        out[i] = (stamp){status.st_mtim, status.st_ino, status.st_size};
    }
    return true;
}

static bool same(const stamp *a, const stamp *b) {
    return a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec && a->inode == b->inode &&
           a->size == b->size;
}

static int no_password(char *out, int size, int writing, void *context) {
    (void)writing;
    (void)context;
    if (size > 0)
        out[0] = '\0';
    return -1; /* nobody is there to be asked */
}

static int on_verify(int fine, X509_STORE_CTX *store);

/* The CA's file has a list of those that are revoked. */
static bool revokes(const char *path) {
    char line[128];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, "-----BEGIN X509 CRL-----", 24) == 0;
    if (file)
        fclose(file);
    return found;
}

static SSL_CTX *read_files(const rs_tls_files *files, char text[RS_TLS_TEXT]) {
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    ERR_clear_error();
    if (!context || !SSL_CTX_set_min_proto_version(context, files->strict ? TLS1_3_VERSION : TLS1_2_VERSION)) {
        say(text, "TLS cannot be set up: out of memory");
    } else {
        SSL_CTX_set_default_passwd_cb(context, no_password);
        if (SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
            say(text, "%s holds no certificate that can be used (PEM)", files->certificate);
        else if (SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1)
            say(text,
                ERR_GET_REASON(ERR_peek_error()) == X509_R_KEY_VALUES_MISMATCH
                    ? "the key %s is not that of the certificate"
                    : "%s holds no private key that can be used (PEM, not encrypted)",
                files->key);
        else if (SSL_CTX_load_verify_file(context, files->authority) != 1)
            say(text, "%s holds no certificate of a CA (PEM)", files->authority);
        else {
            SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_verify);
            if (files->strict && revokes(files->authority))
                X509_STORE_set_flags(SSL_CTX_get_cert_store(context), X509_V_FLAG_CRL_CHECK);
            SSL_CTX_set_num_tickets(context, 0); /* connections last */
            SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
            SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
            SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
            return context;
        }
    }
    ERR_clear_error();
    SSL_CTX_free(context);
    return NULL;
}

bool rs_tls_identity_refresh(rs_tls_identity *identity, char text[RS_TLS_TEXT]) {
    stamp now[FILES];
    if (!look(&identity->files, now, text))
        return false;
    bool changed = !identity->context;
    for (int i = 0; i < FILES; i++)
        changed |= !same(&now[i], &identity->seen[i]);
    if (!changed)
        return true;
    SSL_CTX *context = read_files(&identity->files, text);
    if (!context)
        return false;
    SSL_CTX_free(identity->context); /* connections that use it keep it */
    identity->context = context;
    memcpy(identity->seen, now, sizeof now);
    identity->readings++;
    return true;
}

rs_tls_identity *rs_tls_identity_new(const rs_tls_files *files, char text[RS_TLS_TEXT]) {
    rs_tls_identity *identity = calloc(1, sizeof *identity);
    if (!identity || !(identity->socket = socket_method())) {
        say(text, "TLS cannot be set up: out of memory");
    } else {
        identity->files = *files;
        if (rs_tls_identity_refresh(identity, text))
            return identity;
    }
    rs_tls_identity_free(identity);
    return NULL;
}

void rs_tls_identity_free(rs_tls_identity *identity) {
    if (!identity)
        return;
    SSL_CTX_free(identity->context);
    BIO_meth_free(identity->socket);
    free(identity);
}

/* ---- words ---- */

static void date(const ASN1_TIME *time, char out[32]) {
    struct tm parts;
    if (!time || !ASN1_TIME_to_tm(time, &parts) || strftime(out, 32, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        snprintf(out, 32, "an unknown time");
}

/* Why the manager's certificate is refused. */
static int on_verify(int fine, X509_STORE_CTX *store) {
    if (fine)
        return fine;
    rs_tls *tls = SSL_get_app_data((SSL *)X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    char when[32];
    int error = X509_STORE_CTX_get_error(store);
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        date(certificate ? X509_get0_notAfter(certificate) : NULL, when);
        say(tls->text, "its certificate expired at %s", when);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        date(certificate ? X509_get0_notBefore(certificate) : NULL, when);
        say(tls->text, "its certificate holds from %s only; is this machine's clock right?", when);
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        say(tls->text, "its certificate is not signed by the CA in %s", tls->identity->files.authority);
        break;
    case X509_V_ERR_CERT_REVOKED:
        say(tls->text, "its certificate was revoked");
        break;
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        say(tls->text, "its certificate is not for %s (it needs subjectAltName=IP:%s)", tls->address, tls->address);
        break;
    default:
        say(tls->text, "its certificate is refused: %s", X509_verify_cert_error_string(error));
    }
    return 0;
}

/* What the manager says against this agent's certificate, by its alert; NULL: nothing. */
static const char *complaint(int reason) {
    switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        return "no CA that it knows has signed it";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "it has expired, or does not hold yet";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        return "it was revoked";
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        return "it is not one for clients (extendedKeyUsage)";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        return "it is not valid there";
    default:
        return NULL;
    }
}

static void explain(rs_tls *tls, unsigned long error) {
    int reason = ERR_GET_REASON(error);
    const char *refused = complaint(reason);
    if (tls->text[0])
        return; /* on_verify has said it */
    if (refused)
        say(tls->text, "it refuses the certificate %s: %s", tls->identity->files.certificate, refused);
    else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
             reason == SSL_R_HTTP_REQUEST)
        say(tls->text, "it does not speak TLS; start %s",
            tls->peer ? "its rostrumd with --security required"
                      : "rostrum-manager with --thrift-tls, or rostrumd without --manager-tls");
    else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        say(tls->text, "it shows no certificate");
    else if (reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION)
        say(tls->text, "it speaks no TLS from %s on", tls->identity->files.strict ? "1.3" : "1.2");
    else if (error && reason != SSL_R_UNEXPECTED_EOF_WHILE_READING)
        say(tls->text, "TLS failed: %s", ERR_reason_error_string(error) ? ERR_reason_error_string(error) : "?");
    else if (!tls->shaken && tls->socket_error == 0)
        say(tls->text, "it closed the connection in TLS's handshake");
}

/* ---- a connection ---- */

static rs_tls *on_socket(rs_tls_identity *identity, int fd) {
    rs_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return NULL;
    tls->identity = identity;
    tls->fd = fd;
    tls->held_at = identity->readings;
    tls->ssl = SSL_new(identity->context);
    BIO *bio = BIO_new(identity->socket);
    if (!tls->ssl || !bio) {
        BIO_free(bio);
        SSL_free(tls->ssl);
        free(tls);
        return NULL;
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_app_data(tls->ssl, tls);
    return tls;
}

rs_tls *rs_tls_new(rs_tls_identity *identity, int fd, uint32_t address) {
    rs_tls *tls = on_socket(identity, fd);
    struct in_addr wire = {htonl(address)};
    if (!tls)
        return NULL;
    inet_ntop(AF_INET, &wire, tls->address, sizeof tls->address);
    SSL_set_connect_state(tls->ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), tls->address))
        return tls;
    rs_tls_free(tls);
    return NULL;
}

rs_tls *rs_tls_new_peer(rs_tls_identity *identity, int fd, bool accepts) {
    rs_tls *tls = on_socket(identity, fd);
    if (!tls)
        return NULL;
    tls->peer = true;
    if (accepts)
        SSL_set_accept_state(tls->ssl);
    else
        SSL_set_connect_state(tls->ssl);
    return tls;
}

/* Whether one of the certificate's URIs is `kind` and `wanted`; what is behind the first one's `kind` goes to `out`. */
static bool look_for(const X509 *certificate, const char *kind, const char *wanted, char *out) {
    GENERAL_NAMES *names = certificate ? X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL) : NULL;
    bool found = false, first = true;
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        const char *uri = (const char *)ASN1_STRING_get0_data(name->d.uniformResourceIdentifier);
        size_t length = (size_t)ASN1_STRING_length(name->d.uniformResourceIdentifier), head = strlen(kind);
        if (length <= head || memcmp(uri, kind, head) != 0)
            continue;
        found |= wanted && length - head == strlen(wanted) && memcmp(uri + head, wanted, length - head) == 0;
        if (first && out)
            snprintf(out, RS_TLS_TEXT, "%.*s", (int)(length - head), uri + head);
        first = false;
    }
    GENERAL_NAMES_free(names);
    return found;
}

/* The tenant of the other's certificate, "" where there are none; true if it is that of ours. */
static bool look_for_tenant(const rs_tls *tls, char out[RS_TLS_TEXT]) {
    char own[RS_TLS_TEXT] = "";
    out[0] = '\0';
    (void)look_for(SSL_get_certificate(tls->ssl), TENANT, NULL, own);
    (void)look_for(SSL_get0_peer_certificate(tls->ssl), TENANT, NULL, out);
    return strcmp(own, out) == 0;
}

bool rs_tls_holds(rs_tls *tls) {
    X509 *certificate = tls->shaken ? SSL_get0_peer_certificate(tls->ssl) : NULL;
    if (tls->held_at == tls->identity->readings || !certificate)
        return true;
    X509_STORE_CTX *look = X509_STORE_CTX_new();
    bool held = look &&
                X509_STORE_CTX_init(look, SSL_CTX_get_cert_store(tls->identity->context), certificate,
                                    SSL_get_peer_cert_chain(tls->ssl)) == 1 &&
                X509_verify_cert(look) == 1;
    X509_STORE_CTX_free(look);
    ERR_clear_error();
    tls->held_at = held ? tls->identity->readings : tls->held_at;
    return held;
}

bool rs_tls_is_agent(const rs_tls *tls, const char *server) {
    char tenant[RS_TLS_TEXT];
    return tls->shaken && SSL_get_verify_result(tls->ssl) == X509_V_OK &&
           look_for(SSL_get0_peer_certificate(tls->ssl), AGENT, server, NULL) && look_for_tenant(tls, tenant);
}

const char *rs_tls_agent(const rs_tls *tls, char out[RS_TLS_TEXT]) {
    char tenant[RS_TLS_TEXT];
    snprintf(out, RS_TLS_TEXT, "no agent");
    (void)look_for(SSL_get0_peer_certificate(tls->ssl), AGENT, NULL, out);
    if (!look_for_tenant(tls, tenant)) {
        size_t used = strlen(out);
        snprintf(out + used, RS_TLS_TEXT - used, ", of another tenant (%.64s)", tenant);
    }
    return out;
}

void rs_tls_free(rs_tls *tls) {
    if (!tls)
        return;
    ERR_clear_error();
    if (tls->shaken && !tls->failed)
        SSL_shutdown(tls->ssl);
    ERR_clear_error();
    SSL_free(tls->ssl);
    free(tls);
}

/* What a call of OpenSSL that did not do it all means: -EAGAIN, 0 = the stream's end, or another negative. */
static int outcome(rs_tls *tls, int result) {
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        tls->wants_write = true;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        break;
    }
    unsigned long error = ERR_peek_error();
    bool ended = tls->shaken && tls->socket_error == 0 &&
                 (error == 0 || ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING);
    tls->failed = true;
    if (!ended)
        explain(tls, error);
    ERR_clear_error();
    if (ended)
        return 0;
    return tls->socket_error ? -tls->socket_error : -EPROTO;
}

static void begin(rs_tls *tls) {
    ERR_clear_error();
    tls->wants_write = false;
    tls->socket_error = 0;
}

int rs_tls_handshake(rs_tls *tls) {
    begin(tls);
    int done = SSL_do_handshake(tls->ssl);
    if (done == 1) {
        tls->shaken = true;
        return 0;
    }
    int why = outcome(tls, done);
    return why ? why : -EPROTO;
}

ssize_t rs_tls_read(rs_tls *tls, void *out, size_t size) {
    begin(tls);
    int n = SSL_read(tls->ssl, out, size > WRITE_MAX ? WRITE_MAX : (int)size);
    tls->shaken |= SSL_is_init_finished(tls->ssl);
    return n > 0 ? n : outcome(tls, n);
}

ssize_t rs_tls_write(rs_tls *tls, const void *bytes, size_t length) {
    begin(tls);
    int n = SSL_write(tls->ssl, bytes, length > WRITE_MAX ? WRITE_MAX : (int)length);
    tls->shaken |= SSL_is_init_finished(tls->ssl);
    if (n > 0)
        return n;
    int why = outcome(tls, n);
    return why ? why : -EPIPE;
}

bool rs_tls_wants_write(const rs_tls *tls) {
    return tls->wants_write;
}

bool rs_tls_shaken(const rs_tls *tls) {
    return tls->shaken;
}

bool rs_tls_pending(const rs_tls *tls) {
    return SSL_pending(tls->ssl) > 0;
}

bool rs_tls_partial(const rs_tls *tls) {
    return SSL_has_pending(tls->ssl);
}

const char *rs_tls_text(const rs_tls *tls) {
    return tls->text;
}
