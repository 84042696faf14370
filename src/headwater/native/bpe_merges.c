/* Learn the merges of a vocabulary, as tokenizer/bpe_merges.py and reference.py do.

   The functions are called through ctypes without the interpreter's lock. All return a code of calls.h below 0 when
   memory runs out or the interpreter ends. */

#include "arrays.h"
#include "calls.h"

enum { FEW = 2 }; /* most pairs occur in one or two words */

typedef struct {
    uint64_t key; /* left << 32 | right */
    int64_t count;
    union {
        int32_t *many, few[FEW];
    } words; /* where it may occur; entries may be stale, never missing */
    int32_t used, capacity; /* capacity 0: `few` */
    int32_t touched; /* the merge that last changed it upward */
} Pair;

typedef struct {
    int64_t count;
    uint64_t key;
} Candidate;

typedef struct {
    int32_t *symbols;
    int64_t *borders;
    int32_t *lengths;
    const int64_t *counts;
    int64_t words;
    Pair *pairs;
    int64_t pairs_used, pairs_capacity;
    int32_t *table; /* hash of a key -> index into pairs + 1 */
    int64_t table_capacity;
    Candidate *heap;
    int64_t heap_used, heap_capacity;
    int32_t **spellings; /* each token as alphabet ids, the length first */
    int32_t *spelling_table;
    int64_t spelling_capacity;
    int32_t tokens, tokens_limit, alphabet;
    int32_t merges;
    int64_t *grown;
    int64_t grown_used, grown_capacity;
} Learner;

static uint64_t mix(uint64_t key) {
    key ^= key >> 31;
    key *= 0x7FB5D329728EA185ull;
    key ^= key >> 27;
    key *= 0x81DADEF4BC2DD44Dull;
    return key ^ (key >> 33);
}

static int64_t pair_find(Learner *learner, uint64_t key, int create) {
    int64_t mask = learner->table_capacity - 1;
    int64_t place = (int64_t)(mix(key) & (uint64_t)mask);
    while (learner->table[place]) {
        int64_t index = learner->table[place] - 1;
        if (learner->pairs[index].key == key) return index;
        place = (place + 1) & mask;
    }
    if (!create) return -1;
    if (make_room((void **)&learner->pairs, learner->pairs_used + 1, &learner->pairs_capacity, sizeof(Pair)))
        return -1;
    learner->pairs[learner->pairs_used] = (Pair){.key = key, .touched = -1};
    learner->table[place] = (int32_t)++learner->pairs_used;
    int64_t index = learner->pairs_used - 1;
    if (learner->pairs_used * 3 > learner->table_capacity * 2) {
        int64_t capacity = learner->table_capacity * 2;
        int32_t *table = calloc((size_t)capacity, sizeof(int32_t));
        if (!table) return -1;
        for (int64_t i = 0; i < learner->pairs_used; i++) {
            int64_t slot = (int64_t)(mix(learner->pairs[i].key) & (uint64_t)(capacity - 1));
            while (table[slot]) slot = (slot + 1) & (capacity - 1);
            table[slot] = (int32_t)(i + 1);
        }
        free(learner->table);
        learner->table = table;
        learner->table_capacity = capacity;
    }
    return index;
}

static int before(Candidate a, Candidate b) { return a.count != b.count ? a.count > b.count : a.key < b.key; }

static int heap_push(Learner *learner, Candidate candidate) {
    if (make_room((void **)&learner->heap, learner->heap_used + 1, &learner->heap_capacity, sizeof(Candidate)))
        return -1;
    int64_t place = learner->heap_used++;
    while (place && before(candidate, learner->heap[(place - 1) / 2])) {
        learner->heap[place] = learner->heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    learner->heap[place] = candidate;
    return 0;
}

static Candidate heap_pop(Learner *learner) {
    Candidate top = learner->heap[0], last = learner->heap[--learner->heap_used];
    int64_t place = 0;
    for (;;) {
        int64_t child = 2 * place + 1;
        if (child >= learner->heap_used) break;
        if (child + 1 < learner->heap_used && before(learner->heap[child + 1], learner->heap[child])) child++;
        if (!before(learner->heap[child], last)) break;
        learner->heap[place] = learner->heap[child];
        place = child;
    }
    learner->heap[place] = last;
    return top;
}

static int32_t *places(Pair *pair) { return pair->capacity ? pair->words.many : pair->words.few; }

static int add_place(Pair *pair, int32_t word) {
    if (pair->used && places(pair)[pair->used - 1] == word) return 0;
    if (pair->used == (pair->capacity ? pair->capacity : FEW)) {
        if (pair->used > INT32_MAX / 2) return -1;
        int32_t capacity = pair->used + pair->used / 2 + 1;
        int32_t *many = realloc(pair->capacity ? pair->words.many : NULL, (size_t)capacity * sizeof(int32_t));
        if (!many) return -1;
        if (!pair->capacity) memcpy(many, pair->words.few, sizeof(pair->words.few));
        pair->words.many = many;
        pair->capacity = capacity;
    }
    places(pair)[pair->used++] = word;
    return 0;
}

/* The id of the token that left and right spell: an old one where it exists, else a new one. */
static int32_t token_of(Learner *learner, int32_t left, int32_t right) {
    const int32_t one_left[] = {1, left}, one_right[] = {1, right};
    const int32_t *first = left < learner->alphabet ? one_left : learner->spellings[left - learner->alphabet];
    const int32_t *second = right < learner->alphabet ? one_right : learner->spellings[right - learner->alphabet];
    int32_t length = first[0] + second[0];
    int32_t *spelling = malloc((size_t)(length + 1) * sizeof(int32_t));
    if (!spelling) return -1;
    spelling[0] = length;
    memcpy(spelling + 1, first + 1, (size_t)first[0] * sizeof(int32_t));
    memcpy(spelling + 1 + first[0], second + 1, (size_t)second[0] * sizeof(int32_t));
    size_t size = (size_t)(length + 1) * sizeof(int32_t);
    int64_t mask = learner->spelling_capacity - 1;
    int64_t place = (int64_t)(hash_bytes((uint8_t *)spelling, (int64_t)size) & (uint64_t)mask);
    while (learner->spelling_table[place]) {
        int32_t index = learner->spelling_table[place] - 1;
        if (learner->spellings[index][0] == length && !memcmp(learner->spellings[index], spelling, size)) {
            free(spelling);
            return learner->alphabet + index;
        }
        place = (place + 1) & mask;
    }
    learner->spellings[learner->tokens] = spelling;
    learner->spelling_table[place] = learner->tokens + 1;
    return learner->alphabet + learner->tokens++;
}

EXPORT void learner_free(void *handle) {
    Learner *learner = handle;
    if (!learner) return;
    if (learner->pairs)
        for (int64_t i = 0; i < learner->pairs_used; i++) if (learner->pairs[i].capacity) free(learner->pairs[i].words.many);
    if (learner->spellings)
        for (int32_t i = 0; i < learner->tokens; i++) free(learner->spellings[i]);
    free(learner->pairs);
    free(learner->table);
    free(learner->heap);
    free(learner->spellings);
    free(learner->spelling_table);
    free(learner->lengths);
    free(learner->grown);
    free(learner);
}

/* `symbols` is worked on in place; it, `borders` and `counts` must outlive the learner. */
EXPORT void *learner_new(int32_t *symbols, int64_t *borders, const int64_t *counts, int64_t words, int32_t alphabet,
                         int32_t new_tokens) {
    Learner *learner = calloc(1, sizeof(Learner));
    if (!learner) return NULL;
    learner->symbols = symbols;
    learner->borders = borders;
    learner->counts = counts;
    learner->words = words;
    learner->alphabet = alphabet;
    learner->tokens_limit = new_tokens;
    /* Enough for most texts: what is not touched takes no memory, and growing would need both copies for a while. */
    learner->pairs_capacity = 4096 + 16 * (int64_t)new_tokens;
    learner->table_capacity = 1 << 13;
    learner->heap_capacity = learner->pairs_capacity;
    learner->grown_capacity = 1 << 10;
    learner->spelling_capacity = 16;
    while (learner->spelling_capacity < 2 * (int64_t)new_tokens) learner->spelling_capacity *= 2;
    learner->pairs = malloc((size_t)learner->pairs_capacity * sizeof(Pair));
    learner->table = calloc((size_t)learner->table_capacity, sizeof(int32_t));
    learner->heap = malloc((size_t)learner->heap_capacity * sizeof(Candidate));
    learner->grown = malloc((size_t)learner->grown_capacity * sizeof(int64_t));
    learner->spellings = calloc((size_t)new_tokens + 1, sizeof(int32_t *));
    learner->spelling_table = calloc((size_t)learner->spelling_capacity, sizeof(int32_t));
    learner->lengths = malloc((size_t)(words + 1) * sizeof(int32_t));
    if (!learner->pairs || !learner->table || !learner->heap || !learner->grown || !learner->spellings ||
        !learner->spelling_table || !learner->lengths)
        goto failed;
    for (int64_t word = 0; word < words; word++) {
        const int32_t *at = symbols + borders[word];
        learner->lengths[word] = (int32_t)(borders[word + 1] - borders[word]);
        for (int32_t i = 0; i + 1 < learner->lengths[word]; i++) {
            int64_t index = pair_find(learner, (uint64_t)at[i] << 32 | (uint32_t)at[i + 1], 1);
            if (index < 0) goto failed;
            learner->pairs[index].count += counts[word];
            if (add_place(&learner->pairs[index], (int32_t)word)) goto failed;
        }
    }
    for (int64_t i = 0; i < learner->pairs_used; i++)
        if (heap_push(learner, (Candidate){learner->pairs[i].count, learner->pairs[i].key})) goto failed;
    return learner;
failed:
    learner_free(learner);
    return NULL;
}

static int change(Learner *learner, int32_t left, int32_t right, int64_t by, int32_t word) {
    int64_t index = pair_find(learner, (uint64_t)left << 32 | (uint32_t)right, 1);
    if (index < 0) return -1;
    Pair *pair = &learner->pairs[index];
    pair->count += by;
    if (by < 0) return 0;
    if (pair->touched != learner->merges) {
        pair->touched = learner->merges;
        if (make_room((void **)&learner->grown, learner->grown_used + 1, &learner->grown_capacity, sizeof(int64_t)))
            return -1;
        learner->grown[learner->grown_used++] = index;
    }
    return add_place(pair, word);
}

static int merge_in_word(Learner *learner, int32_t word, int32_t left, int32_t right, int32_t merged) {
    int32_t *at = learner->symbols + learner->borders[word];
    int32_t length = learner->lengths[word], from = 0, to = 0;
    int64_t count = learner->counts[word];
    while (from < length) {
        if (from + 1 < length && at[from] == left && at[from + 1] == right) {
            if (to && (change(learner, at[to - 1], left, -count, word) ||
                       change(learner, at[to - 1], merged, count, word)))
                return -1;
            if (from + 2 < length && (change(learner, right, at[from + 2], -count, word) ||
                                      change(learner, merged, at[from + 2], count, word)))
                return -1;
            at[to++] = merged;
            from += 2;
        } else {
            at[to++] = at[from++];
        }
    }
    learner->lengths[word] = to;
    return 0;
}

static int64_t merge_some(Learner *learner, int64_t limit, int32_t *out) {
    int64_t made = 0;
    while (made < limit && learner->heap_used && learner->tokens < learner->tokens_limit) {
        Candidate top = heap_pop(learner);
        int64_t index = pair_find(learner, top.key, 0);
        int64_t count = learner->pairs[index].count;
        if (count <= 0) continue;
        if (count != top.count) {
            if (heap_push(learner, (Candidate){count, top.key})) return -1;
            continue;
        }
        int32_t left = (int32_t)(top.key >> 32), right = (int32_t)(top.key & 0xFFFFFFFFu);
        int32_t merged = token_of(learner, left, right);
        if (merged < 0) return -1;
        Pair merging = learner->pairs[index]; /* its place in the table may move meanwhile */
        learner->pairs[index].used = learner->pairs[index].capacity = 0;
        learner->grown_used = 0;
        for (int32_t i = 0; i < merging.used; i++) {
            if (merge_in_word(learner, places(&merging)[i], left, right, merged)) {
                if (merging.capacity) free(merging.words.many);
                return -1;
            }
        }
        if (merging.capacity) free(merging.words.many);
        learner->pairs[index].count = 0;
        for (int64_t i = 0; i < learner->grown_used; i++) {
            Pair *pair = &learner->pairs[learner->grown[i]];
            if (pair->count > 0 && heap_push(learner, (Candidate){pair->count, pair->key})) return -1;
        }
        out[3 * made] = left;
        out[3 * made + 1] = right;
        out[3 * made + 2] = merged;
        made++;
        learner->merges++;
    }
    return made;
}

/* Make up to `limit` merges, three ids each into `out`: left, right, merged. Returns how many; fewer: the end. */
EXPORT int64_t learner_run(void *handle, int64_t limit, int32_t *out) {
    if (!calls_enter()) return CLOSED;
    const int64_t made = merge_some(handle, limit, out);
    calls_leave();
    return made;
}
