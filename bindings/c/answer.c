/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "answer.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "number.h"
#include "utf8.h"

/* Longest name of an element of XML-RPC is that of dateTime.iso8601. */
#define MAX_NAME 32

enum tag_kind { TAG_OPEN, TAG_CLOSE, TAG_END_OF_BODY };

struct tag {
    enum tag_kind kind;
    char name[MAX_NAME];
};

struct reader {
    const char *at;
    const char *end;
    unsigned depth;
    unsigned elements;
    /* An element that is empty (<name/>) is read as open, then as closed. */
    int close_pending;
    char pending[MAX_NAME];
    /* Why reading stopped; NULL with `failed` set: memory ran out. */
    const char *problem;
    int failed;
};

static int fail(struct reader *reader, const char *problem)
{
    if (!reader->failed) {
        reader->failed = 1;
        reader->problem = problem;
    }
    return 0;
}

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int begins(const struct reader *reader, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(reader->end - reader->at) >= length && memcmp(reader->at, text, length) == 0;
}

/* Moves behind the next `text`. */
static int skip_to(struct reader *reader, const char *text)
{
    for (; reader->at < reader->end; reader->at++)
        if (begins(reader, text)) {
            reader->at += strlen(text);
            return 1;
        }
    return fail(reader, "the XML is cut off");
}

static int add_reference(struct reader *reader, struct bytes *text)
{
    static const struct {
        const char *name;
        char character;
    } known[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins(reader, known[i].name)) {
            reader->at += strlen(known[i].name);
            enable_bytes_add(text, &known[i].character, 1);
            return 1;
        }
    if (!begins(reader, "&#"))
        return fail(reader, "an unknown entity");
    reader->at += 2;
    unsigned base = 10;
    if (begins(reader, "x")) {
        base = 16;
        reader->at++;
    }
    unsigned long point = 0;
    int digits = 0;
    for (; reader->at < reader->end && *reader->at != ';'; reader->at++, digits++) {
        char c = *reader->at;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 99;
        point = point * base + digit;
        if (digit >= base || point > 0x10ffff)
            return fail(reader, "an invalid character reference");
    }
    char out[4];
    size_t length = enable_utf8_encode(point, out);
    if (digits == 0 || reader->at == reader->end || length == 0 || !enable_utf8_is_xml(point))
        return fail(reader, "an invalid character reference");
    reader->at++;
    enable_bytes_add(text, out, length);
    return 1;
}

/* Reads text up to the next tag or the end of the body. */
static int read_text(struct reader *reader, struct bytes *text)
{
    while (!reader->close_pending && reader->at < reader->end) {
        if (begins(reader, "<!--")) {
            reader->at += 4;
            if (!skip_to(reader, "-->"))
                return 0;
        } else if (begins(reader, "<?")) {
            if (!skip_to(reader, "?>"))
                return 0;
        } else if (begins(reader, "<![CDATA[")) {
            const char *start = reader->at += 9;
            if (!skip_to(reader, "]]>"))
                return 0;
            enable_bytes_add(text, start, (size_t)(reader->at - 3 - start));
        } else if (begins(reader, "<!")) {
            return fail(reader, "a document type declaration is not allowed");
        } else if (*reader->at == '<') {
            break;
        } else if (*reader->at == '&') {
            if (!add_reference(reader, text))
                return 0;
        } else {
            const char *start = reader->at;
            while (reader->at < reader->end && *reader->at != '<' && *reader->at != '&')
                reader->at++;
            enable_bytes_add(text, start, (size_t)(reader->at - start));
        }
    }
    return text->failed ? fail(reader, NULL) : 1;
}

/* Reads the tag at the current position. */
static int read_tag(struct reader *reader, struct tag *tag)
{
    if (reader->close_pending) {
        reader->close_pending = 0;
        reader->depth--;
        tag->kind = TAG_CLOSE;
        memcpy(tag->name, reader->pending, MAX_NAME);
        return 1;
    }
    if (reader->at == reader->end) {
        tag->kind = TAG_END_OF_BODY;
        return 1;
    }
    reader->at++;
    tag->kind = begins(reader, "/") ? TAG_CLOSE : TAG_OPEN;
    reader->at += tag->kind == TAG_CLOSE;
    size_t length = 0;
    for (; reader->at < reader->end && !is_space(*reader->at) && *reader->at != '>' && *reader->at != '/'; reader->at++) {
        if (length + 1 >= MAX_NAME)
            return fail(reader, "an unknown element");
        tag->name[length++] = *reader->at;
    }
    tag->name[length] = '\0';
    while (reader->at < reader->end && is_space(*reader->at))
        reader->at++;
    int empty = tag->kind == TAG_OPEN && begins(reader, "/");
    reader->at += empty;
    /* XML-RPC knows no attributes. */
    if (length == 0 || !begins(reader, ">"))
        return fail(reader, "a malformed element");
    reader->at++;
    if (tag->kind == TAG_CLOSE) {
        if (reader->depth == 0)
            return fail(reader, "an element is closed that is not open");
        reader->depth--;
        return 1;
    }
    if (++reader->depth > ENABLE_MAX_DEPTH || ++reader->elements > ENABLE_MAX_ELEMENTS)
        return fail(reader, "too many or too deeply nested elements");
    reader->close_pending = empty;
    if (empty)
        memcpy(reader->pending, tag->name, MAX_NAME);
    return 1;
}

/* Reads the next tag, with nothing but white space before it. */
static int next_tag(struct reader *reader, struct tag *tag)
{
    struct bytes text = {0};
    int read = read_text(reader, &text);
    for (size_t i = 0; read && i < text.length; i++)
        if (!is_space(text.data[i]))
            read = fail(reader, "text between elements");
    enable_bytes_clear(&text);
    return read && read_tag(reader, tag);
}

static int is_tag(const struct tag *tag, enum tag_kind kind, const char *name)
{
    return tag->kind == kind && strcmp(tag->name, name) == 0;
}

static int expect(struct reader *reader, enum tag_kind kind, const char *name)
{
    struct tag tag;
    if (!next_tag(reader, &tag))
        return 0;
    return is_tag(&tag, kind, name) ? 1 : fail(reader, "an element is missing or in the wrong place");
}

/* Reads the text of an element up to its end. The caller frees it; NULL on failure. */
static char *text_of(struct reader *reader, const char *name)
{
    struct bytes text = {0};
    struct tag tag;
    enable_bytes_add(&text, "", 0);
    if (read_text(reader, &text) && read_tag(reader, &tag)) {
        if (is_tag(&tag, TAG_CLOSE, name))
            return text.data;
        fail(reader, "an element is not closed");
    }
    enable_bytes_clear(&text);
    return NULL;
}

static enable_value *read_value(struct reader *reader);

/* Reads the items or members of `value`, whose element is open. */
static int read_array(struct reader *reader, enable_value *value)
{
    struct tag tag;
    if (!expect(reader, TAG_OPEN, "data"))
        return 0;
    while (next_tag(reader, &tag)) {
        if (is_tag(&tag, TAG_CLOSE, "data"))
            return expect(reader, TAG_CLOSE, "array");
        if (!is_tag(&tag, TAG_OPEN, "value"))
            return fail(reader, "an array holds something else than values");
        enable_value *item = read_value(reader);
        if (item == NULL)
            return 0;
        if (!enable_value_add(value, NULL, item))
            return fail(reader, NULL);
    }
    return 0;
}

static int read_struct(struct reader *reader, enable_value *value)
{
    struct tag tag;
    while (next_tag(reader, &tag)) {
        if (is_tag(&tag, TAG_CLOSE, "struct"))
            return 1;
        if (!is_tag(&tag, TAG_OPEN, "member"))
            return fail(reader, "a struct holds something else than members");
        if (!expect(reader, TAG_OPEN, "name"))
            return 0;
        char *name = text_of(reader, "name");
        if (name == NULL)
            return 0;
        enable_value *item = expect(reader, TAG_OPEN, "value") ? read_value(reader) : NULL;
        if (item == NULL) {
            free(name);
            return 0;
        }
        if (!enable_value_add(value, name, item))
            return fail(reader, NULL);
        if (!expect(reader, TAG_CLOSE, "member"))
            return 0;
    }
    return 0;
}

/* Reads a number or a string, whose element is open. */
static int read_scalar(struct reader *reader, enable_value *value, const char *name)
{
    char *text = text_of(reader, name);
    int read = 1;
    if (text == NULL)
        return 0;
    if (value->type == ENABLE_STRING) {
        value->text = text;
        return 1;
    }
    if (value->type == ENABLE_DOUBLE)
        read = enable_number_double(text, &value->number);
    else
        read = enable_number_integer(text, &value->integer);
    if (value->type == ENABLE_BOOLEAN && value->integer != 0 && value->integer != 1)
        read = 0;
    free(text);
    return read ? 1 : fail(reader, "a value is not of its type");
}

/* The type of an element; 0 if there is none of this name. */
static int type_of(const char *name, enable_type *type)
{
    static const struct {
        const char *name;
        enable_type type;
    } types[] = {
        {"int", ENABLE_INTEGER},    {"i4", ENABLE_INTEGER},     {"i8", ENABLE_INTEGER},
        {"double", ENABLE_DOUBLE},  {"boolean", ENABLE_BOOLEAN}, {"string", ENABLE_STRING},
        {"base64", ENABLE_STRING},  {"dateTime.iso8601", ENABLE_STRING},
        {"array", ENABLE_ARRAY},    {"struct", ENABLE_STRUCT},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            *type = types[i].type;
            return 1;
        }
    return 0;
}

/* Reads a value with its type, whose element is `tag`. */
static enable_value *read_typed(struct reader *reader, const struct tag *tag)
{
    enable_type type;
    if (tag->kind != TAG_OPEN || !type_of(tag->name, &type)) {
        fail(reader, "a value of an unknown type");
        return NULL;
    }
    enable_value *value = enable_value_new(type);
    if (value == NULL) {
        fail(reader, NULL);
        return NULL;
    }
    int read = type == ENABLE_ARRAY    ? read_array(reader, value)
               : type == ENABLE_STRUCT ? read_struct(reader, value)
                                       : read_scalar(reader, value, tag->name);
    if (read && expect(reader, TAG_CLOSE, "value"))
        return value;
    enable_value_free(value);
    return NULL;
}

/* Reads a value, whose element is open. Text without a type is a string. */
static enable_value *read_value(struct reader *reader)
{
    struct bytes text = {0};
    struct tag tag;
    enable_value *value = NULL;
    enable_bytes_add(&text, "", 0);
    if (!read_text(reader, &text) || !read_tag(reader, &tag))
        goto done;
    if (is_tag(&tag, TAG_CLOSE, "value")) {
        value = enable_value_new(ENABLE_STRING);
        if (value == NULL) {
            fail(reader, NULL);
            goto done;
        }
        value->text = text.data;
        return value;
    }
    for (size_t i = 0; i < text.length; i++)
        if (!is_space(text.data[i])) {
            fail(reader, "text between elements");
            goto done;
        }
    value = read_typed(reader, &tag);
done:
    enable_bytes_clear(&text);
    return value;
}

static int is_xml_text(const char *body, size_t length)
{
    for (size_t at = 0; at < length;) {
        unsigned long point;
        size_t step = enable_utf8_decode(body + at, length - at, &point);
        if (step == 0 || !enable_utf8_is_xml(point))
            return 0;
        at += step;
    }
    return 1;
}

/* Reads the whole document. */
static enable_value *read_document(struct reader *reader, int *fault)
{
    struct tag tag;
    if (!expect(reader, TAG_OPEN, "methodResponse") || !next_tag(reader, &tag))
        return NULL;
    *fault = is_tag(&tag, TAG_OPEN, "fault");
    if (!*fault && !is_tag(&tag, TAG_OPEN, "params")) {
        fail(reader, "neither a value nor a fault");
        return NULL;
    }
    if (!*fault && !expect(reader, TAG_OPEN, "param"))
        return NULL;
    enable_value *value = expect(reader, TAG_OPEN, "value") ? read_value(reader) : NULL;
    if (value == NULL)
        return NULL;
    int closed = *fault ? expect(reader, TAG_CLOSE, "fault")
                        : expect(reader, TAG_CLOSE, "param") && expect(reader, TAG_CLOSE, "params");
    if (closed && expect(reader, TAG_CLOSE, "methodResponse") && next_tag(reader, &tag)) {
        if (tag.kind == TAG_END_OF_BODY)
            return value;
        fail(reader, "something follows the answer");
    }
    enable_value_free(value);
    return NULL;
}

enable_value *enable_answer_read(const char *body, size_t length, int *fault, const char **problem)
{
    struct reader reader = {0};
    enable_value *value = NULL;
    *fault = 0;
    reader.at = body;
    reader.end = body + length;
    if (length > ENABLE_MAX_BODY)
        fail(&reader, "longer than 262144 bytes");
    else if (!is_xml_text(body, length))
        fail(&reader, "not XML text in UTF-8");
    else
        value = read_document(&reader, fault);
    *problem = value == NULL ? reader.problem : NULL;
    return value;
}
