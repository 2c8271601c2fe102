//! Blocks that may come from decode.

use super::*;

const SIZE: usize = 16;

/// Prompt and answer as an engine would tell of them: the prompt's whole blocks in one event, then
/// one block at a time.
fn serve(index: &mut Index, ids: &[u32], prompt: usize) {
    serve_as(index, ids, prompt, &real());
}

fn serve_as(index: &mut Index, ids: &[u32], prompt: usize, model: &ModelContext<'_>) {
    let name = |block: usize| {
        let bytes: Vec<u8> =
            ids[..(block + 1) * SIZE].iter().flat_map(|id| id.to_le_bytes()).collect();
        xxhash_rust::xxh3::xxh3_64(&bytes)
    };
    let whole = prompt / SIZE;
    let names: Vec<u64> = (0..whole).map(name).collect();
    if whole > 0 {
        let event = stored(&names, None, &ids[..whole * SIZE], SIZE as u32);
        index.apply(0, &Event::Stored(event), model);
    }
    for block in whole..ids.len() / SIZE {
        let parent = block.checked_sub(1).map(name);
        let event =
            stored(&[name(block)], parent, &ids[block * SIZE..(block + 1) * SIZE], SIZE as u32);
        index.apply(0, &Event::Stored(event), model);
    }
}

fn encode(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    assert!(REAL.encoder.encode(text, &mut ids));
    ids
}

fn told(index: &mut Index) -> Vec<u64> {
    let mut told = Told::default();
    told.take(index);
    told.hashes()
}

const PROMPT: &str = "<|im_start|>system\nYou answer in short sentences, and you never invent \
    figures. Say so if you do not know.<|im_end|>\n<|im_start|>user\nHow does a load balancer know \
    which replica is warm?<|im_end|>\n<|im_start|>assistant\n";

const ANSWER: &str = "It follows what each engine tells of its cache: blocks that were stored, and \
    blocks that were evicted.\n\n1. A block is 16 tokens; 2. its name is a hash (of 64 bits).\n\n\
    ```rust\nfn held(blocks: &[u64]) -> usize {\n    blocks.iter().filter(|b| **b != 0).count()\n}\n\
    ```\n\nGrößere Modelle brauchen mehr Speicher – natürlich. 你好，世界。这是一个很长的句子，没有空格。 \
    12345678901234567890, 3.14159; e-mail: a.b@c.de … done!";

#[test]
fn canonical_answers_are_held_to_their_last_block_wherever_blocks_begin() {
    // Prompts of all lengths modulo the engine's block and the byte block.
    for shift in 0..160 {
        let text = format!("{}{PROMPT}{ANSWER}", "x".repeat(shift % 7) + &" y".repeat(shift));
        let ids = encode(&text);
        let prompt = encode(&text[..text.len() - ANSWER.len()]).len();
        let mut index = Index::default();
        serve(&mut index, &ids, prompt);
        let whole = &ids[..ids.len() / SIZE * SIZE];
        let expected = sorted(chain(&scope("tiny"), &REAL.tokens, whole));
        assert_eq!(index.counters().differing, 0, "shift {shift}");
        assert_eq!(told(&mut index), expected, "shift {shift}");
    }
}

#[test]
fn an_answer_in_other_ids_than_its_text_gets_ends_the_chain() {
    let prompt = encode(PROMPT);
    let answer = encode(ANSWER);
    // One id of some characters becomes one id per byte.
    let bytes: Vec<u32> = (0..=255u8)
        .map(|byte| {
            let found = (0..).find(|id| REAL.tokens.get(*id) == Some(&[byte]));
            found.unwrap()
        })
        .collect();
    for position in 0..answer.len().min(60) {
        let text = REAL.tokens.get(answer[position]).unwrap();
        if text.len() < 2 {
            continue;
        }
        let split = text.iter().map(|byte| bytes[usize::from(*byte)]);
        let mut ids = prompt.clone();
        ids.extend(&answer[..position]);
        let block = ids.len() / SIZE;
        ids.extend(split);
        ids.extend(&answer[position + 1..]);
        let mut index = Index::default();
        serve(&mut index, &ids, prompt.len());
        let told = told(&mut index);
        let right = chain(&scope("tiny"), &REAL.tokens, &ids[..block * SIZE]);
        let most = sorted(right);
        assert!(told.iter().all(|hash| most.contains(hash)), "position {position}");
        assert!(index.counters().differing > 0, "position {position}");
        // All blocks are known nevertheless: what hangs on them is no orphan.
        assert_eq!((index.counters().orphans, index.blocks()), (0, ids.len() / SIZE));
    }
}

#[test]
fn an_id_that_the_next_block_would_have_changed_ends_the_chain_before_it() {
    // " walk" ends a block and "ing" begins the next, where the text has " walking".
    let whole = encode(" information");
    assert_eq!(whole.len(), 1);
    let (head, tail) = (encode(" inform"), encode("ation"));
    let prompt = encode(PROMPT);
    let mut ids = prompt.clone();
    let room = (ids.len() / SIZE + 2) * SIZE - head.len();
    let filler = encode(&" and then".repeat(SIZE * 2));
    ids.extend(&filler[..room - ids.len()]);
    ids.extend(&head);
    let boundary = ids.len();
    assert_eq!(boundary % SIZE, 0);
    ids.extend(&tail);
    ids.extend(&filler[..SIZE - tail.len()]);
    let mut index = Index::default();
    serve(&mut index, &ids, prompt.len());
    let expected = chain(&scope("tiny"), &REAL.tokens, &ids[..boundary - SIZE]);
    assert_eq!(told(&mut index), sorted(expected));
}

#[test]
fn text_that_is_no_utf8_ends_the_chain() {
    let prompt = encode(PROMPT);
    let stray = (0..).find(|id| REAL.tokens.get(*id) == Some(&[0xff])).unwrap();
    let mut ids = prompt.clone();
    ids.resize((prompt.len() / SIZE + 2) * SIZE, stray);
    let mut index = Index::default();
    serve(&mut index, &ids, prompt.len());
    let whole = prompt.len() / SIZE * SIZE;
    assert_eq!(told(&mut index), sorted(chain(&scope("tiny"), &REAL.tokens, &ids[..whole])));
    assert_eq!(index.counters().differing, 1);
}

/// For each of the real tokenizers, `make models` fetches them.
#[test]
fn canonical_answers_are_held_with_every_real_tokenizer() {
    for name in ["qwen3", "qwen2_5", "llama3", "gptoss", "deepseek_v3", "gemma3"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/models").join(name);
        assert!(folder.join("version").exists(), "no tokenizer of {name}: run `make models`");
        let tokenizer = Tokenizer::load(&folder).unwrap();
        let model =
            ModelContext { tokens: &tokenizer.tokens, encoder: &tokenizer.encoder, ..real() };
        let encode = |text: &str| {
            let mut ids = Vec::new();
            assert!(tokenizer.encoder.encode(text, &mut ids));
            ids
        };
        let mut differing = Vec::new();
        for shift in 0..48 {
            let text = format!("{}{PROMPT}{ANSWER}", " y".repeat(shift));
            let ids = encode(&text);
            let prompt = encode(&text[..text.len() - ANSWER.len()]).len();
            let mut index = Index::default();
            serve_as(&mut index, &ids, prompt, &model);
            let whole = &ids[..ids.len() / SIZE * SIZE];
            if index.counters().differing > 0 {
                differing.push(shift);
                continue;
            }
            let expected = sorted(chain(&scope("tiny"), &tokenizer.tokens, whole));
            assert_eq!(told(&mut index), expected, "{name}, shift {shift}");
        }
        assert_eq!(differing, [0usize; 0], "{name}");
    }
}
