//! Tokenizers: from text to ids of tokens and back.
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};

use weft_sys as sys;

use crate::error::{array, attempt, c_string, initialized, Error, Result, Status};
use crate::path_text;

/// What [`Tokenizer::encode`] does with special tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Specials {
    /// Add the tokens for the begin and the end of a text.
    pub add: bool,
    /// The name of a special token in the text is text.
    pub plain: bool,
}

/// How [`Tokenizer::chat`] renders a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chat {
    /// The text ends with the begin of an answer. Default: true
    pub add_generation_prompt: bool,
    /// For templates that print the date: the local time since 1970-01-01 00:00, in nanoseconds.
    pub local_time_ns: Option<i64>,
    /// Refuse a content with the name of a special token, for messages that are not trusted.
    pub refuse_specials: bool,
}

impl Default for Chat {
    fn default() -> Chat {
        Chat { add_generation_prompt: true, local_time_ns: None, refuse_specials: false }
    }
}

/// A file tokenizer.json of Hugging Face's `tokenizers`.
pub struct Tokenizer {
    raw: NonNull<sys::weft_tokenizer>,
}

// The functions of a tokenizer may be called on any thread; only its end requires that no other thread uses it.
unsafe impl Send for Tokenizer {}
unsafe impl Sync for Tokenizer {}

impl Drop for Tokenizer {
    fn drop(&mut self) {
        unsafe { sys::weft_tokenizer_free(self.raw.as_ptr()) }
    }
}

fn made<T>(raw: *mut T) -> NonNull<T> {
    NonNull::new(raw).expect("a call that succeeds makes an object")
}

fn skip_flag(skip_specials: bool) -> u32 {
    if skip_specials {
        sys::WEFT_SKIP_SPECIALS
    } else {
        0
    }
}

impl Tokenizer {
    pub(crate) fn raw(&self) -> *const sys::weft_tokenizer {
        self.raw.as_ptr()
    }

    /// Opens the file, or that of a directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = path_text(path)?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_tokenizer_open(path.as_ptr(), &mut raw, err) })?;
        Ok(Tokenizer { raw: made(raw) })
    }

    /// Reads the content of such a file.
    pub fn parse(json: &[u8]) -> Result<Tokenizer> {
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_tokenizer_parse(json.as_ptr() as *const c_char, json.len(), &mut raw, err) })?;
        Ok(Tokenizer { raw: made(raw) })
    }

    /// Trains a byte-level BPE on a text, and writes the file. Pairs of tokens that occur less than `min_count` times are not merged.
    pub fn train(text: &str, vocabulary: u32, min_count: u32, specials: &[&str], path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path)?;
        let texts = specials.iter().map(|special| c_string(special)).collect::<Result<Vec<_>>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let mut config = unsafe { initialized(sys::weft_tokenizer_config_init) };
        config.vocabulary = vocabulary;
        config.min_count = min_count;
        (config.specials, config.n_specials) = array("special tokens", &pointers)?;
        attempt(|err| unsafe { sys::weft_tokenizer_train(text.as_ptr() as *const c_char, text.len(), &config, path.as_ptr(), err) })
            .map(drop)
    }

    /// The number of ids. Some may have no token.
    pub fn vocabulary(&self) -> usize {
        unsafe { sys::weft_tokenizer_vocabulary(self.raw.as_ptr()) as usize }
    }

    /// The id of a token as the file writes it.
    pub fn id(&self, token: &str) -> Option<i32> {
        let token = CString::new(token).ok()?;
        let id = unsafe { sys::weft_tokenizer_id(self.raw.as_ptr(), token.as_ptr()) };
        (id >= 0).then_some(id)
    }

    /// The id of the token that ends a text.
    pub fn end_token(&self) -> Option<i32> {
        let id = unsafe { sys::weft_tokenizer_end_token(self.raw.as_ptr()) };
        (id >= 0).then_some(id)
    }

    /// The token of an id as the file writes it, and whether it is special.
    pub fn token(&self, id: i32) -> Option<(String, bool)> {
        let mut special = 0;
        let token = unsafe { sys::weft_tokenizer_token(self.raw.as_ptr(), id, &mut special) };
        (!token.is_null()).then(|| (unsafe { CStr::from_ptr(token) }.to_string_lossy().into_owned(), special != 0))
    }

    /// The ids of a text.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<i32>> {
        let flags = (specials.add as u32 * sys::WEFT_ADD_SPECIALS) | (specials.plain as u32 * sys::WEFT_PLAIN_SPECIALS);
        let mut size = text.len() / 2 + 16;
        loop {
            let mut ids = vec![0; size];
            let content = text.as_ptr() as *const c_char;
            attempt(|err| unsafe {
                let (raw, out) = (self.raw.as_ptr(), ids.as_mut_ptr());
                sys::weft_tokenizer_encode(raw, content, text.len(), flags, out, ids.len(), &mut size, err)
            })?;
            if size <= ids.len() {
                ids.truncate(size);
                return Ok(ids);
            }
        }
    }

    /// A conversation as text, with the chat template of the model; a message is its role and its content. Encode the text without
    /// [`Specials::add`]: the template has added them.
    pub fn chat(&self, messages: &[(&str, &str)], chat: Chat) -> Result<String> {
        let text = |text: &str| CString::new(text).map_err(|_| Error::new(Status::Invalid, "a message contains a NUL"));
        let texts = messages.iter().map(|(role, content)| Ok((text(role)?, text(content)?))).collect::<Result<Vec<_>>>()?;
        let raw = texts.iter().map(|(role, content)| sys::weft_chat_message { role: role.as_ptr(), content: content.as_ptr() });
        let raw = raw.collect::<Vec<_>>();
        let mut config = unsafe { initialized(sys::weft_chat_config_init) };
        config.add_generation_prompt = chat.add_generation_prompt as u32;
        config.refuse_specials = chat.refuse_specials as u32;
        config.local_time_ns = chat.local_time_ns.unwrap_or(0);
        let mut size = 256 + messages.iter().map(|(_, content)| 2 * content.len()).sum::<usize>();
        loop {
            let mut text = vec![0u8; size];
            attempt(|err| unsafe {
                let out = text.as_mut_ptr() as *mut c_char;
                sys::weft_tokenizer_chat(self.raw.as_ptr(), raw.as_ptr(), raw.len(), &config, out, text.len(), &mut size, err)
            })?;
            if size <= text.len() {
                text.truncate(size);
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
        }
    }

    /// The text of ids. Bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[i32], skip_specials: bool) -> Result<String> {
        let flags = skip_flag(skip_specials);
        let mut size = 8 * ids.len() + 16;
        loop {
            let mut text = vec![0u8; size];
            attempt(|err| unsafe {
                let (raw, out) = (self.raw.as_ptr(), text.as_mut_ptr() as *mut c_char);
                sys::weft_tokenizer_decode(raw, ids.as_ptr(), ids.len(), flags, out, text.len(), &mut size, err)
            })?;
            if size <= text.len() {
                text.truncate(size);
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
        }
    }

    /// Starts a text whose ids arrive one by one.
    pub fn stream(&self, skip_specials: bool) -> Result<TextStream> {
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_text_stream_new(self.raw.as_ptr(), skip_flag(skip_specials), &mut raw, err) })?;
        Ok(TextStream { raw: made(raw) })
    }
}

/// Decodes ids that arrive one by one.
pub struct TextStream {
    raw: NonNull<sys::weft_text_stream>,
}

unsafe impl Send for TextStream {}

impl Drop for TextStream {
    fn drop(&mut self) {
        unsafe { sys::weft_text_stream_free(self.raw.as_ptr()) }
    }
}

impl TextStream {
    /// What the id adds to the text. A character whose bytes are not complete is held back.
    pub fn add(&mut self, id: i32) -> Result<String> {
        let (mut text, mut size) = (null(), 0);
        attempt(|err| unsafe { sys::weft_text_stream_add(self.raw.as_ptr(), id, &mut text, &mut size, err) })?;
        Ok(unsafe { part(text, size) })
    }

    /// The rest of the text; the stream then starts another one.
    pub fn finish(&mut self) -> Result<String> {
        let (mut text, mut size) = (null(), 0);
        attempt(|err| unsafe { sys::weft_text_stream_finish(self.raw.as_ptr(), &mut text, &mut size, err) })?;
        Ok(unsafe { part(text, size) })
    }
}

unsafe fn part(text: *const c_char, size: usize) -> String {
    let bytes = unsafe { std::slice::from_raw_parts(text as *const u8, size) };
    String::from_utf8_lossy(bytes).into_owned()
}
