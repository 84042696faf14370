/* Count the pieces of GPT-2's pre-split, as tokenizer/bpe_words.py and reference.py do.

   The functions are called through ctypes without the interpreter's lock, so that several counters can work at once.
   All return a code of calls.h below 0 when memory runs out or the interpreter ends. */

#include "arrays.h"
#include "calls.h"

enum { SIGN = 0, LETTER = 1, NUMBER = 2, SPACE = 3 };

typedef struct {
    int64_t start, count;
    uint32_t hash;
    int32_t length;
} Word;

typedef struct {
    Word *words;
    int64_t used, capacity;
    int32_t *table; /* hash -> index into words + 1; 0: empty */
    int64_t table_capacity;
    uint8_t *text; /* the distinct words, one after the other */
    int64_t text_used, text_capacity;
} Counter;

EXPORT void counter_free(void *handle) {
    Counter *counter = handle;
    if (!counter) return;
    free(counter->words);
    free(counter->table);
    free(counter->text);
    free(counter);
}

EXPORT void *counter_new(void) {
    Counter *counter = calloc(1, sizeof(Counter));
    if (!counter) return NULL;
    counter->capacity = 1 << 10;
    counter->table_capacity = 1 << 12;
    counter->text_capacity = 1 << 14;
    counter->words = malloc((size_t)counter->capacity * sizeof(Word));
    counter->table = calloc((size_t)counter->table_capacity, sizeof(int32_t));
    counter->text = malloc((size_t)counter->text_capacity);
    if (counter->words && counter->table && counter->text) return counter;
    counter_free(counter);
    return NULL;
}

static int counter_grow_table(Counter *counter) {
    int64_t capacity = counter->table_capacity * 2;
    int32_t *table = calloc((size_t)capacity, sizeof(int32_t));
    if (!table) return -1;
    for (int64_t i = 0; i < counter->used; i++) {
        int64_t place = (int64_t)counter->words[i].hash & (capacity - 1);
        while (table[place]) place = (place + 1) & (capacity - 1);
        table[place] = (int32_t)(i + 1);
    }
    free(counter->table);
    counter->table = table;
    counter->table_capacity = capacity;
    return 0;
}

static int count_word(Counter *counter, const uint8_t *text, int64_t length, int64_t times) {
    uint32_t hash = (uint32_t)hash_bytes(text, length);
    int64_t mask = counter->table_capacity - 1, place = (int64_t)hash & mask;
    while (counter->table[place]) {
        Word *word = &counter->words[counter->table[place] - 1];
        if (word->hash == hash && word->length == length &&
            !memcmp(counter->text + word->start, text, (size_t)length)) {
            word->count += times;
            return 0;
        }
        place = (place + 1) & mask;
    }
    if (length > INT32_MAX || counter->used >= INT32_MAX - 1) return -1;
    if (make_room((void **)&counter->text, counter->text_used + length, &counter->text_capacity, 1) ||
        make_room((void **)&counter->words, counter->used + 1, &counter->capacity, sizeof(Word)))
        return -1;
    memcpy(counter->text + counter->text_used, text, (size_t)length);
    counter->words[counter->used++] = (Word){counter->text_used, times, hash, (int32_t)length};
    counter->text_used += length;
    counter->table[place] = (int32_t)counter->used;
    return counter->used * 3 > counter->table_capacity * 2 ? counter_grow_table(counter) : 0;
}

/* The category of the character at `text`, and its length in bytes. */
static inline int category(const uint8_t *text, const uint8_t *categories, int64_t known, int *length) {
    uint32_t first = text[0], code;
    if (first < 0x80) {
        *length = 1;
        return categories[first];
    }
    if (first < 0xE0) {
        *length = 2;
        code = (first & 0x1F) << 6 | (text[1] & 0x3F);
    } else if (first < 0xF0) {
        *length = 3;
        code = (first & 0x0F) << 12 | (uint32_t)(text[1] & 0x3F) << 6 | (text[2] & 0x3F);
    } else {
        *length = 4;
        code = (first & 0x07) << 18 | (uint32_t)(text[1] & 0x3F) << 12 | (uint32_t)(text[2] & 0x3F) << 6 |
               (text[3] & 0x3F);
    }
    return code < (uint32_t)known ? categories[code] : SIGN;
}

static int contraction(const uint8_t *text, int64_t left) {
    if (left < 2) return 0;
    uint8_t one = text[1];
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return 2;
    if (left < 3) return 0;
    uint8_t two = text[2];
    return ((one == 'r' || one == 'v') && two == 'e') || (one == 'l' && two == 'l') ? 3 : 0;
}

/* Count the pieces of valid UTF-8 text; `categories` holds the category of the first `known` code points. */
static int count_text(Counter *counter, const uint8_t *text, int64_t size, const uint8_t *categories, int64_t known) {
    int64_t place = 0;
    while (place < size) {
        int64_t end;
        int length;
        int short_form = text[place] == '\'' ? contraction(text + place, size - place) : 0;
        if (short_form) {
            end = place + short_form;
        } else {
            end = place;
            int kind = category(text + end, categories, known, &length);
            if (text[place] == ' ' && place + 1 < size) {
                int next_length, next = category(text + place + 1, categories, known, &next_length);
                if (next != SPACE) {
                    end++;
                    kind = next;
                    length = next_length;
                }
            }
            int last;
            do {
                last = length;
                end += length;
            } while (end < size && category(text + end, categories, known, &length) == kind);
            if (kind == SPACE && end < size && end - place > last) end -= last;
        }
        if (count_word(counter, text + place, end - place, 1)) return -1;
        place = end;
    }
    return 0;
}

EXPORT int64_t counter_add(void *handle, const uint8_t *text, int64_t size, const uint8_t *categories, int64_t known) {
    if (!calls_enter()) return CLOSED;
    const int failed = count_text(handle, text, size, categories, known);
    calls_leave();
    return failed ? OUT_OF_MEMORY : DONE;
}

/* Add everything that `from` has counted. */
EXPORT int64_t counter_merge(void *handle, const void *from) {
    const Counter *other = from;
    int failed = 0;
    if (!calls_enter()) return CLOSED;
    for (int64_t i = 0; i < other->used && !failed; i++) {
        const Word *word = &other->words[i];
        failed = count_word(handle, other->text + word->start, word->length, word->count);
    }
    calls_leave();
    return failed ? OUT_OF_MEMORY : DONE;
}

EXPORT int64_t counter_words(const void *handle) { return ((const Counter *)handle)->used; }

EXPORT int64_t counter_bytes(const void *handle) { return ((const Counter *)handle)->text_used; }

/* The words' bytes through `ids`, their borders (words + 1) and counts. */
EXPORT void counter_export(const void *handle, const int32_t *ids, int32_t *symbols, int64_t *borders,
                           int64_t *counts) {
    const Counter *counter = handle;
    for (int64_t i = 0; i < counter->used; i++) {
        borders[i] = counter->words[i].start;
        counts[i] = counter->words[i].count;
    }
    borders[counter->used] = counter->text_used;
    for (int64_t i = 0; i < counter->text_used; i++) symbols[i] = ids[counter->text[i]];
}
