package org.longhaul.enable;

import java.io.StringReader;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.xml.stream.XMLInputFactory;
import javax.xml.stream.XMLStreamConstants;
import javax.xml.stream.XMLStreamException;
import javax.xml.stream.XMLStreamReader;

/**
 * Reads the body of an XML-RPC answer within bounds. Values become {@code Long}, {@code Double}, {@code Boolean},
 * {@code String} (also times and base64), {@code List} and {@code Map}.
 */
final class XmlRpcReader {
    /** Longest body that is read, bytes. */
    static final int MAX_BODY = 256 * 1024;
    /** Deepest nesting of elements. */
    private static final int MAX_DEPTH = 32;
    /** Most elements in a body. */
    private static final int MAX_ELEMENTS = 16_384;

    private final XMLStreamReader xml;
    private int depth;
    private int elements;

    private XmlRpcReader(XMLStreamReader xml) {
        this.xml = xml;
    }

    /** The value of an answer. */
    static Object read(byte[] body) throws MalformedAnswerException, FaultException {
        if (body.length > MAX_BODY) {
            throw new MalformedAnswerException("longer than " + MAX_BODY + " bytes");
        }
        try {
            // Decoded here, so that the document cannot choose another encoding.
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(body)).toString();
            // The parser would refuse it too, but writes to standard error where one is cut off.
            require(!text.contains("<!DOCTYPE"), "a document type declaration is not allowed");
            XMLInputFactory factory = XMLInputFactory.newDefaultFactory();
            factory.setProperty(XMLInputFactory.SUPPORT_DTD, false);
            factory.setProperty(XMLInputFactory.IS_SUPPORTING_EXTERNAL_ENTITIES, false);
            factory.setProperty(XMLInputFactory.IS_COALESCING, true);
            XMLStreamReader xml = factory.createXMLStreamReader(new StringReader(text));
            try {
                return new XmlRpcReader(xml).document();
            } finally {
                xml.close();
            }
        } catch (CharacterCodingException error) {
            throw new MalformedAnswerException("not UTF-8");
        } catch (XMLStreamException error) {
            // Its message holds what the server sent.
            throw new MalformedAnswerException("not well-formed XML");
        } catch (NumberFormatException error) {
            throw new MalformedAnswerException("a value is not of its type");
        } catch (RuntimeException error) {
            // The parser of the JDK throws these on some malformed documents.
            throw new MalformedAnswerException("not XML (" + error.getClass().getSimpleName() + ")");
        }
    }

    private Object document() throws XMLStreamException, MalformedAnswerException, FaultException {
        open("methodResponse");
        String kind = nextElement();
        boolean fault = "fault".equals(kind);
        if (!fault) {
            require("params".equals(kind), "neither a value nor a fault");
            open("param");
        }
        open("value");
        Object value = value();
        close();
        if (!fault) {
            close();
        }
        close();
        for (int event = next(); event != XMLStreamConstants.END_DOCUMENT; event = next()) {
            require(event != XMLStreamConstants.START_ELEMENT, "something follows the answer");
        }
        if (fault) {
            throw faultOf(value);
        }
        return value;
    }

    private static FaultException faultOf(Object value) throws MalformedAnswerException {
        Object code = value instanceof Map ? ((Map<?, ?>) value).get("faultCode") : null;
        Object text = value instanceof Map ? ((Map<?, ?>) value).get("faultString") : null;
        boolean complete = code instanceof Long && (Long) code == ((Long) code).intValue() && text instanceof String;
        require(complete, "the fault has no code or no text");
        return new FaultException(((Long) code).intValue(), (String) text);
    }

    /** Reads a value whose element is open, and its end. Text without a type is a string. */
    private Object value() throws XMLStreamException, MalformedAnswerException {
        String text = "";
        int event = next();
        if (event == XMLStreamConstants.CHARACTERS) {
            text = xml.getText();
            event = next();
        }
        // A comment may divide the text.
        while (event == XMLStreamConstants.CHARACTERS) {
            text += xml.getText();
            event = next();
        }
        if (event == XMLStreamConstants.END_ELEMENT) {
            return text;
        }
        require(event == XMLStreamConstants.START_ELEMENT && text.isBlank(), "text between elements");
        Object value = typed(xml.getLocalName());
        close();
        return value;
    }

    /** Reads what an element with a type holds, and its end. */
    private Object typed(String type) throws XMLStreamException, MalformedAnswerException {
        switch (type) {
            case "int":
            case "i4":
            case "i8":
                return Long.valueOf(digits(text(), "[+-]?[0-9]+"));
            case "double":
                Double number = Double.valueOf(digits(text(), "[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"));
                require(!number.isInfinite(), "a number is not finite");
                return number;
            case "boolean":
                return "1".equals(digits(text(), "[01]"));
            case "string":
            case "base64":
            case "dateTime.iso8601":
                return text();
            case "array":
                return array();
            case "struct":
                return struct();
            default:
                throw new MalformedAnswerException("a value of an unknown type");
        }
    }

    private static String digits(String text, String form) throws MalformedAnswerException {
        String digits = text.strip();
        // The expressions are for short texts.
        require(digits.length() <= 400 && digits.matches(form), "a value is not of its type");
        return digits;
    }

    private List<Object> array() throws XMLStreamException, MalformedAnswerException {
        List<Object> items = new ArrayList<>();
        open("data");
        for (String name = nextElement(); name != null; name = nextElement()) {
            require("value".equals(name), "an array holds something else than values");
            items.add(value());
        }
        close();
        return items;
    }

    private Map<String, Object> struct() throws XMLStreamException, MalformedAnswerException {
        Map<String, Object> members = new LinkedHashMap<>();
        for (String element = nextElement(); element != null; element = nextElement()) {
            require("member".equals(element), "a struct holds something else than members");
            open("name");
            String name = text();
            open("value");
            members.put(name, value());
            close();
        }
        return members;
    }

    /** Reads the text of an element, and its end. */
    private String text() throws XMLStreamException, MalformedAnswerException {
        StringBuilder text = new StringBuilder();
        int event = next();
        for (; event == XMLStreamConstants.CHARACTERS; event = next()) {
            text.append(xml.getText());
        }
        require(event == XMLStreamConstants.END_ELEMENT, "an element is in the wrong place");
        return text.toString();
    }

    private void open(String name) throws XMLStreamException, MalformedAnswerException {
        require(name.equals(nextElement()), "an element is missing or in the wrong place");
    }

    private void close() throws XMLStreamException, MalformedAnswerException {
        require(nextElement() == null, "an element is in the wrong place");
    }

    /** Name of the element that begins next, or null where one ends. */
    private String nextElement() throws XMLStreamException, MalformedAnswerException {
        int event = next();
        while (event == XMLStreamConstants.CHARACTERS && xml.getText().isBlank()) {
            event = next();
        }
        require(event != XMLStreamConstants.CHARACTERS, "text between elements");
        require(event != XMLStreamConstants.END_DOCUMENT, "the XML is cut off");
        return event == XMLStreamConstants.START_ELEMENT ? xml.getLocalName() : null;
    }

    /** The next event that means something here. */
    private int next() throws XMLStreamException, MalformedAnswerException {
        while (true) {
            int event = xml.next();
            switch (event) {
                case XMLStreamConstants.START_ELEMENT:
                    depth++;
                    elements++;
                    require(depth <= MAX_DEPTH && elements <= MAX_ELEMENTS, "too many or too deeply nested elements");
                    return event;
                case XMLStreamConstants.END_ELEMENT:
                    depth--;
                    return event;
                case XMLStreamConstants.END_DOCUMENT:
                    return event;
                case XMLStreamConstants.CHARACTERS:
                case XMLStreamConstants.CDATA:
                case XMLStreamConstants.SPACE:
                    return XMLStreamConstants.CHARACTERS;
                case XMLStreamConstants.COMMENT:
                case XMLStreamConstants.PROCESSING_INSTRUCTION:
                    break;
                case XMLStreamConstants.DTD:
                    throw new MalformedAnswerException("a document type declaration is not allowed");
                default:
                    throw new MalformedAnswerException("an unknown entity");
            }
        }
    }

    private static void require(boolean condition, String problem) throws MalformedAnswerException {
        if (!condition) {
            throw new MalformedAnswerException(problem);
        }
    }
}
